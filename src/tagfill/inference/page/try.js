// Try the model on your own images, and read the API description.

const $ = (id) => document.getElementById(id);
const form = document.querySelector("form");
const drop = document.querySelector(".drop");

function element(name, text, attributes = {}) {
  const created = document.createElement(name);
  if (text !== undefined) created.textContent = text;
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  return created;
}

async function predict(files) {
  $("problem").textContent = "";
  const body = new FormData();
  for (const file of files) body.append("images", file);
  const words = new URLSearchParams();
  if (form.top_k.value) words.set("top_k", form.top_k.value);
  if (form.heatmaps.checked) words.set("heatmaps", "true");
  const response = await fetch(`/predict?${words}`, { method: "POST", body }).catch(() => null);
  const content = response ? await response.json().catch(() => ({})) : {};
  if (!response?.ok) {
    $("problem").textContent = content.error ?? "The server does not respond.";
    return;
  }
  $("answers").replaceChildren(...content.predictions.map((one, number) => renderPrediction(one, files[number])));
}

function renderPrediction(prediction, file) {
  const article = element("article");
  const picture = element("img", undefined, { alt: prediction.image, src: URL.createObjectURL(file) });
  const words = element("div");
  words.append(element("h3", prediction.image));
  const list = element("ol");
  const scores = Object.entries(prediction.scores).sort((a, b) => b[1] - a[1]);
  for (const [label, score] of scores.slice(0, 12)) {
    const item = element("li");
    item.append(element("span", label), element("span", score.toFixed(3)));
    item.style.background = `linear-gradient(90deg, var(--bar) ${100 * score}%, transparent 0)`;
    item.classList.toggle("present", prediction.present.includes(label));
    list.append(item);
  }
  words.append(list);
  article.append(picture, words);
  if (prediction.heatmaps) {
    const maps = element("div", undefined, { class: "maps" });
    for (const [label, source] of Object.entries(prediction.heatmaps)) {
      const figure = element("figure");
      figure.append(element("img", undefined, { src: source, alt: `where ${label} is` }), element("figcaption", label));
      maps.append(figure);
    }
    article.append(maps);
  }
  return article;
}

form.images.addEventListener("change", () => form.images.files.length && predict([...form.images.files]));
form.addEventListener("submit", (event) => event.preventDefault());
for (const name of ["dragover", "dragleave", "drop"]) {
  drop.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", name === "dragover");
    if (name === "drop" && event.dataTransfer.files.length) predict([...event.dataTransfer.files]);
  });
}

const [{ classes }, description] = await Promise.all(
  ["/classes", "/openapi.json"].map(async (address) => (await fetch(address)).json()),
);
$("about").textContent = `${description.info.description} It knows ${classes.length.toLocaleString()} classes.`;
for (const [path, methods] of Object.entries(description.paths)) {
  for (const [method, { description: text, summary, parameters }] of Object.entries(methods)) {
    const names = (parameters ?? []).map(({ name }) => name).join(", ");
    $("paths").append(element("dt", `${method.toUpperCase()} ${path}`), element("dd", (text ?? summary) + (names ? ` (${names})` : "")));
  }
}
