// The selected texts whose contrast to what is behind them is below 4.5, with their contrasts.
(selector) => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const pixel = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => {
    const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = pixel(colour).map((value) => linear(value / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((a, b) => b - a);
    return (x + 0.05) / (y + 0.05);
  };
  const paper = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (pixel(colour)[3] === 255) return colour;
    }
    return "white";
  };
  const texts = [...document.querySelectorAll(selector)].filter((element) => element.checkVisibility());
  const seen = texts.map((element) => {
    const style = getComputedStyle(element);
    // A text of an SVG has its colour from `fill`.
    const colour = element.ownerSVGElement ? style.fill : style.color;
    return [element, contrast(colour, paper(element))];
  });
  const bad = seen.filter(([, contrast]) => !(contrast >= 4.5));
  return bad.map(([element, contrast]) => `${element.tagName} ${element.textContent.slice(0, 40)} ${contrast.toFixed(2)}`);
}
