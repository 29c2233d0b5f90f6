# Tagfill for CPUs, with the bundled weights, the servers and ONNX; docs/installing.md shows how to use it.
FROM python:3.11-slim

# The address of PyTorch's index of CPU builds. Without it, pip takes the torch of PyPI and gigabytes of CUDA with it.
ARG PIP_EXTRA_INDEX_URL

COPY pyproject.toml constraints.txt README.md LICENSE /source/
COPY src /source/src
RUN pip install --no-cache-dir --constraint /source/constraints.txt "/source[pretrained,serve,export]" \
    && rm -r /source \
    && useradd --create-home tagfill \
    && install --directory --owner tagfill /data

USER tagfill
WORKDIR /data
EXPOSE 8316
ENTRYPOINT ["tagfill"]
CMD ["--help"]
