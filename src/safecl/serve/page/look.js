// A closer look at one picture: large, with its heat map, and what each learner says.
import { heatMap } from "./api.js";
import { give, mayChange } from "./change.js";
import { $, make } from "./dom.js";
import { percent, say, told } from "./words.js";

const NAMES = { slow: "opinion_slow", fast: "opinion_fast" };
let picture = null, correct = null, map = "";

export function look(one, onCorrect) {
  [picture, correct] = [one, onCorrect];
  const { answer } = picture;
  $("look_head").textContent = picture.name;
  $("look_name").hidden = $("look_out").hidden = !mayChange();
  const labels = (answer?.nearest || []).map(([label]) => label);
  $("heat_class").replaceChildren(...labels.map((label) => make("option", {}, label)));
  $("heat").disabled = $("heat_class").disabled = !labels.length;
  plain();
  $("opinions").replaceChildren(...(answer?.opinions ? opinions(answer) : []));
  $("look").showModal();
}

function plain() {
  const { answer } = picture;
  $("heat").ariaPressed = "false";
  Object.assign($("look_picture"), { src: picture.url, alt: picture.name });
  $("look_said").textContent = !answer ? say("asking") : answer.unknown ? `${told(answer)}. ${say("unknown_long")}` : told(answer);
}

// A row for each output: its three likeliest classes, and what its word counts.
function opinions({ opinions: all, weights = {} }) {
  const last = Object.keys(all).at(-1);
  const rows = Object.entries(all).map(([output, top]) => {
    const shares = top.slice(0, 3).map(([label, share]) => {
      const bar = make("meter", { value: share, ariaHidden: "true" });
      return make("li", {}, make("span", {}, label), bar, make("span", { className: "soft" }, percent(share)));
    });
    const who = output === last ? say("opinion_answer") : NAMES[output] ? say(NAMES[output]) : output;
    const counts = output in weights ? say("opinion_weight", { weight: percent(weights[output]) }) : "";
    return make("tr", {}, make("th", { scope: "row" }, who, make("span", { className: "soft" }, counts)),
      make("td", {}, make("ul", { className: "plain" }, ...shares)));
  });
  return [make("caption", {}, say("opinions")), ...rows];
}

async function heat() {
  const asked = picture, label = $("heat_class").value;
  $("look_said").textContent = say("heat_wait");
  try {
    const found = await heatMap(asked.file, label);
    if (asked !== picture || !$("look").open) return;
    URL.revokeObjectURL(map);
    map = URL.createObjectURL(found);
    plain();
    $("heat").ariaPressed = "true";
    Object.assign($("look_picture"), { src: map, alt: say("heat_alt", { label }) });
  } catch (error) {
    $("look_said").textContent = error.message;
  }
}

export function startLook() {
  $("heat").onclick = () => ($("heat").ariaPressed === "true" ? plain() : heat());
  $("heat_class").onchange = heat;
  $("look_close").onclick = () => $("look").close();
  $("look_name").onclick = () => ($("look").close(), correct());
  $("look_out").onclick = () => ($("look").close(), give([picture], null));
}
