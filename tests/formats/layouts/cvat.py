"""An annotations.xml as CVAT writes it for a task of images."""

from __future__ import annotations

from pathlib import Path

HEAD = """<?xml version="1.0" encoding="utf-8"?>
<annotations>
  <version>1.1</version>
  <meta>
    <task>
      <id>4</id>
      <name>segmentation</name>
      <size>27</size>
      <mode>annotation</mode>
      <overlap>0</overlap>
      <bugtracker></bugtracker>
      <flipped>False</flipped>
      <created>2018-09-25 11:34:24.617558+03:00</created>
      <updated>2018-09-25 11:38:27.301183+03:00</updated>
      <labels>
{labels}
      </labels>
      <segments>
        <segment>
          <id>4</id>
          <start>0</start>
          <stop>26</stop>
          <url>http://localhost:8080/?id=4</url>
        </segment>
      </segments>
      <owner>
        <username>admin</username>
        <email></email>
      </owner>
    </task>
    <dumped>2018-09-25 11:38:28.799808+03:00</dumped>
  </meta>
"""
LABEL = """        <label>
          <name>{name}</name>
          <color>#c06060</color>
          <type>any</type>
          <attributes>
            <attribute>
              <name>truncated</name>
              <mutable>False</mutable>
              <input_type>checkbox</input_type>
              <default_value>false</default_value>
              <values>false</values>
            </attribute>
          </attributes>
        </label>"""


def write_cvat(path: Path, labels: list[str], images: dict[str, str], *, attributes: str = "") -> Path:
    """The file; `images` maps names to the shapes of each 200×100 image."""
    parts = [HEAD.format(labels="\n".join(LABEL.format(name=name) for name in labels))]
    for number, (name, shapes) in enumerate(images.items()):
        parts.append(
            f'  <image id="{number}" name="{name}"{attributes} width="200" height="100">\n{shapes}  </image>\n'
        )
    path.write_text("".join(parts) + "</annotations>\n", encoding="utf-8")
    return path
