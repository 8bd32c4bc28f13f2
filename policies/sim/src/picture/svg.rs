//! SVG elements, colours and the time axis that all pictures share.

use std::fmt::Write;

/// Width of the whole picture, in its own units.
pub(crate) const WIDTH: f64 = 960.0;
/// Left and right end of the time axis.
pub(crate) const LEFT: f64 = 76.0;
pub(crate) const RIGHT: f64 = 944.0;
/// Readable on white and on black.
pub(crate) const GREY: &str = "#7a828c";

/// Colours of jobs; white text is readable on each.
const COLOURS: [&str; 12] = [
    "#2f6db3", "#1f8a78", "#b4612a", "#8150a8", "#a83a5b", "#6b7f1e", "#4a86c8", "#38a08e", "#c97b45",
    "#976abb", "#c05f7c", "#87992f",
];

pub(crate) fn colour(job: u32) -> &'static str {
    COLOURS[job as usize % COLOURS.len()]
}

pub(crate) struct Svg {
    pub(crate) body: String,
}

impl Svg {
    pub(crate) fn new(height: f64, title: &str, description: &str) -> Self {
        let (title, description) = (escape(title), escape(description));
        let mut body = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-labelledby=\"title description\"\n     font-family=\"system-ui, -apple-system, 'Segoe UI', \
             Helvetica, Arial, sans-serif\" font-size=\"12\">\n  <title id=\"title\">{title}</title>\n  \
             <desc id=\"description\">{description}</desc>\n"
        );
        let _ = writeln!(
            body,
            "  <defs><pattern id=\"moving\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
             patternTransform=\"rotate(45)\"><rect width=\"2.4\" height=\"6\" fill=\"{GREY}\"/></pattern>\
             </defs>\n  \
             <text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"600\" fill=\"{GREY}\">{title}</text>\n  \
             <text x=\"16\" y=\"45\" fill=\"{GREY}\">{description}</text>"
        );
        Self { body }
    }

    /// A block with a tooltip.
    pub(crate) fn block(&mut self, at: (f64, f64), size: (f64, f64), fill: &str, tip: &str) {
        let ((x, y), (width, height)) = (at, size);
        let radius = (width.min(height) / 4.0).min(2.0);
        let tip = if tip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tip)) };
        let _ = writeln!(
            self.body,
            "  <rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" \
             rx=\"{radius:.1}\" fill=\"{fill}\">{tip}</rect>"
        );
    }

    /// The name of a block, if the block is large enough.
    pub(crate) fn name_block(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), name: &str) {
        let letters = name.chars().count() as f64;
        if width > 7.0 * letters + 6.0 && height > 13.0 {
            self.text((x + width / 2.0, y + height / 2.0 + 4.0), "middle", "#fff", name);
        }
    }

    /// A line of text; `anchor` is `start`, `middle` or `end`.
    pub(crate) fn text(&mut self, at: (f64, f64), anchor: &str, fill: &str, text: &str) {
        let ((x, y), text) = (at, escape(text));
        let _ = writeln!(
            self.body,
            "  <text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{fill}\">{text}</text>"
        );
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), opacity: f64) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(
            self.body,
            "  <line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{GREY}\" \
             stroke-opacity=\"{opacity}\"/>"
        );
    }

    /// A key: a colour and its meaning.
    pub(crate) fn key(&mut self, x: f64, y: f64, fill: &str, text: &str) {
        self.block((x, y - 10.0), (11.0, 11.0), fill, "");
        self.text((x + 16.0, y), "start", GREY, text);
    }

    /// The width of a key, with the gap to the next one.
    pub(crate) fn key_width(text: &str) -> f64 {
        let letters = text.chars().count() as f64;
        30.0 + 6.4 * letters
    }

    pub(crate) fn end(mut self) -> String {
        self.body.push_str("</svg>\n");
        self.body
    }
}

/// The time axis: maps seconds to horizontal positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    from: f64,
    to: f64,
}

impl Axis {
    pub(crate) fn new(from: f64, to: f64) -> Self {
        Self { from, to: if to > from { to } else { from + 1.0 } }
    }

    pub(crate) fn x(self, seconds: f64) -> f64 {
        LEFT + (seconds - self.from) / (self.to - self.from) * (RIGHT - LEFT)
    }

    /// Draws the ticks from `top` to `bottom`, about eight of them.
    pub(crate) fn draw(self, svg: &mut Svg, top: f64, bottom: f64) {
        const STEPS: [f64; 22] = [
            0.1,
            0.2,
            0.5,
            1.0,
            2.0,
            5.0,
            10.0,
            30.0,
            60.0,
            120.0,
            300.0,
            600.0,
            1800.0,
            3600.0,
            7200.0,
            21_600.0,
            43_200.0,
            86_400.0,
            432_000.0,
            864_000.0,
            2_592_000.0,
            8_640_000.0,
        ];
        let span = self.to - self.from;
        let step = STEPS.into_iter().find(|step| span / step <= 13.0).unwrap_or(span / 8.0);
        let mut number = 0.0;
        while number * step <= span {
            let x = self.x(self.from + number * step);
            svg.line((x, top), (x, bottom), 0.25);
            svg.text((x, bottom + 16.0), "middle", GREY, &tick_text(number * step, step));
            number += 1.0;
        }
    }
}

/// A time in the unit that suits the step.
fn tick_text(seconds: f64, step: f64) -> String {
    let (unit, name) = match step {
        step if step >= 86_400.0 => (86_400.0, "d"),
        step if step >= 3600.0 => (3600.0, "h"),
        step if step >= 60.0 => (60.0, "min"),
        _ => (1.0, "s"),
    };
    let digits = usize::from(step < 1.0);
    format!("{:.digits$} {name}", seconds / unit)
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_break_out_of_the_picture() {
        let mut svg = Svg::new(10.0, "a < b", "\"x\" & y");
        svg.block((0.0, 0.0), (1.0, 1.0), "#000", "</rect><script>");
        let text = svg.end();
        assert!(
            !text.contains("<script>") && text.contains("a &lt; b") && text.contains("&quot;x&quot; &amp; y")
        );
    }

    #[test]
    fn the_axis_has_a_handful_of_ticks_at_any_length() {
        for span in [0.7, 12.0, 300.0, 5_000.0, 90_000.0, 3.2e7] {
            let mut svg = Svg::new(10.0, "", "");
            let before = svg.body.matches("<line").count();
            Axis::new(0.0, span).draw(&mut svg, 0.0, 1.0);
            let ticks = svg.body.matches("<line").count() - before;
            assert!((3..=14).contains(&ticks), "{ticks} ticks for {span} s");
        }
    }
}
