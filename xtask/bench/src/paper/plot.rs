//! Bars and curves as SVG, by `plotters`: dark on white, for pages of any colour.

use std::error::Error;

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::arm::MedianRange;

const SIZE: (u32, u32) = (760, 340);
const COLOURS: [RGBColor; 5] = [
    RGBColor(0x2f, 0x6d, 0xb3),
    RGBColor(0xb4, 0x61, 0x2a),
    RGBColor(0x1f, 0x8a, 0x78),
    RGBColor(0x81, 0x50, 0xa8),
    RGBColor(0x7a, 0x82, 0x8c),
];
const INK: RGBColor = RGBColor(0x22, 0x24, 0x28);
const FONT: &str = "sans-serif";

type Failed = Box<dyn Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A bar and its marks.
pub(super) struct Bar {
    /// Bars of one name have one colour.
    pub(super) name: String,
    pub(super) value: Option<MedianRange>,
    /// A lower bound, where no value is known.
    pub(super) more_than: Option<f64>,
    /// The paper's number.
    pub(super) paper: Option<f64>,
}

/// Named groups of bars.
pub(super) struct Bars<'a> {
    pub(super) title: &'a str,
    pub(super) unit: &'a str,
    pub(super) groups: Vec<(String, Vec<Bar>)>,
}

/// A curve: places and measurements.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, MedianRange)>,
    /// The paper's points have no line between them.
    pub(super) is_paper: bool,
}

/// Curves; the upright axis is logarithmic.
pub(super) struct Lines<'a> {
    pub(super) title: &'a str,
    pub(super) across: &'a str,
    pub(super) unit: &'a str,
    pub(super) log_across: bool,
    pub(super) lines: Vec<Line>,
}

/// Draws an SVG; a failure becomes its text.
fn drawn(draw: impl FnOnce(&Area<'_>) -> Result<(), Failed>) -> String {
    let mut text = String::new();
    let told = {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(Failed::from).and_then(|()| draw(&area)).and_then(|()| Ok(area.present()?))
    };
    match told {
        Ok(()) => text,
        Err(error) => format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\"><text y=\"20\">not drawn: {}</text></svg>\n",
            error.to_string().replace(['<', '&'], " ")
        ),
    }
}

fn font(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

fn placed(size: u32, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    font(size).pos(Pos::new(horizontal, vertical))
}

/// Draws the title and the legend; returns the area below.
fn headed<'a>(area: &Area<'a>, title: &str, keys: &[(String, RGBColor)]) -> Result<Area<'a>, Failed> {
    area.draw_text(title, &font(17), (14, 10))?;
    let mut x = 14;
    for (name, colour) in keys {
        area.draw(&Rectangle::new([(x, 41), (x + 11, 52)], colour.filled()))?;
        area.draw_text(name, &font(13), (x + 16, 40))?;
        x += 34 + i32::try_from(name.chars().count() * 7)?;
    }
    Ok(area.margin(60, 8, 8, 16))
}

pub(super) fn bars(of: &Bars<'_>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for bar in of.groups.iter().flat_map(|(_, bars)| bars) {
        if !names.contains(&bar.name.as_str()) {
            names.push(&bar.name);
        }
    }
    let colour =
        |name: &str| COLOURS[names.iter().position(|of| *of == name).unwrap_or_default() % COLOURS.len()];
    let mut keys: Vec<(String, RGBColor)> =
        names.iter().map(|name| ((*name).to_owned(), colour(name))).collect();
    if of.groups.iter().flat_map(|(_, bars)| bars).any(|bar| bar.paper.is_some()) {
        keys.push(("the paper's, as a line".into(), INK));
    }
    let heights =
        of.groups.iter().flat_map(|(_, bars)| bars).flat_map(|bar| {
            [bar.value.map(|value| value.max), bar.more_than, bar.paper].into_iter().flatten()
        });
    let most = heights.fold(0.0, f64::max).max(1e-9) * 1.14;
    drawn(|area| {
        let below = headed(area, of.title, &keys)?;
        let mut chart = ChartBuilder::on(&below)
            .x_label_area_size(28)
            .y_label_area_size(54)
            .build_cartesian_2d(0.0..of.groups.len().max(1) as f64, 0.0..most)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .y_labels(6)
            .y_desc(of.unit)
            .label_style(font(13))
            .axis_desc_style(font(13))
            .light_line_style(WHITE)
            .bold_line_style(INK.mix(0.12))
            .draw()?;
        for (at, (group, bars)) in of.groups.iter().enumerate() {
            let width = 0.86 / bars.len().max(1) as f64;
            let middle = at as f64 + 0.5;
            for (number, bar) in bars.iter().enumerate() {
                let left = at as f64 + 0.07 + width * number as f64;
                let (from, to, centre) = (left + 0.04 * width, left + 0.96 * width, left + width / 2.0);
                let colour = colour(&bar.name);
                let (height, label) = match (bar.value, bar.more_than) {
                    (Some(value), _) => (value.median, short(value.median)),
                    (None, Some(least)) => (least, format!("> {}", short(least))),
                    (None, None) => (0.0, "none".into()),
                };
                let fill = if bar.value.is_some() { colour.mix(1.0) } else { colour.mix(0.35) };
                chart.draw_series([Rectangle::new([(from, 0.0), (to, height)], fill.filled())])?;
                if let Some(value) = bar.value.filter(|value| value.max > value.min) {
                    chart.draw_series([PathElement::new(
                        [(centre, value.min), (centre, value.max)],
                        INK.stroke_width(2),
                    )])?;
                }
                if let Some(paper) = bar.paper {
                    chart
                        .draw_series([PathElement::new([(from, paper), (to, paper)], INK.stroke_width(3))])?;
                }
                let top = bar.value.map_or(height, |value| value.max).max(bar.paper.unwrap_or(0.0));
                chart.draw_series([Text::new(
                    label,
                    (centre, top + most * 0.012),
                    placed(13, HPos::Center, VPos::Bottom),
                )])?;
            }
            let (x, y) = chart.backend_coord(&(middle, 0.0));
            area.draw_text(group, &placed(13, HPos::Center, VPos::Top), (x, y + 8))?;
        }
        Ok(())
    })
}

pub(super) fn lines(of: &Lines<'_>) -> String {
    let colour = |at: usize| if of.lines[at].is_paper { INK } else { COLOURS[at % COLOURS.len()] };
    let keys: Vec<_> = (0..of.lines.len()).map(|at| (of.lines[at].name.clone(), colour(at))).collect();
    let points = || of.lines.iter().flat_map(|line| &line.points);
    let (first, last) =
        points().fold((f64::INFINITY, 0.0_f64), |(first, last), (x, _)| (first.min(*x), last.max(*x)));
    let (least, most) = points().fold((f64::INFINITY, 0.0_f64), |(least, most), (_, value)| {
        (least.min(value.min), most.max(value.max))
    });
    if !(least > 0.0 && most.is_finite() && last > first) {
        return drawn(|area| Ok(area.draw_text("nothing was measured", &font(15), (14, 40))?));
    }
    let y = (least * 0.8..most * 1.25).log_scale();
    drawn(|area| {
        let below = headed(area, of.title, &keys)?;
        let mut builder = ChartBuilder::on(&below);
        builder.x_label_area_size(44).y_label_area_size(64);
        // The two charts differ in their types only.
        macro_rules! draw {
            ($chart:expr, $x:expr) => {{
                let mut chart = $chart;
                chart
                    .configure_mesh()
                    .x_desc(of.across)
                    .y_desc(of.unit)
                    .x_label_formatter(&$x)
                    .y_label_formatter(&|value| tick(*value))
                    .label_style(font(13))
                    .axis_desc_style(font(13))
                    .light_line_style(WHITE)
                    .bold_line_style(INK.mix(0.12))
                    .draw()?;
                for (at, line) in of.lines.iter().enumerate() {
                    let medians = || line.points.iter().map(|(x, value)| (*x, value.median));
                    if !line.is_paper {
                        chart.draw_series(LineSeries::new(medians(), colour(at).stroke_width(2)))?;
                    }
                    chart.draw_series(medians().map(|point| Circle::new(point, 4, colour(at).filled())))?;
                    chart.draw_series(line.points.iter().map(|(x, value)| {
                        PathElement::new([(*x, value.min), (*x, value.max)], colour(at).stroke_width(2))
                    }))?;
                }
            }};
        }
        match of.log_across {
            true => draw!(builder.build_cartesian_2d((first..last).log_scale(), y)?, |x: &f64| bytes(*x)),
            false => {
                draw!(builder.build_cartesian_2d(first - 0.3..last + 0.3, y)?, |x: &f64| whole(*x))
            }
        }
        Ok(())
    })
}

/// Three significant digits.
pub(super) fn short(value: f64) -> String {
    match value {
        value if value >= 99.5 => format!("{value:.0}"),
        value if value >= 9.95 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// Label of a logarithmic axis, which has room for 1, 2 and 5.
fn tick(value: f64) -> String {
    let digit = (value / 10f64.powf(value.log10().floor() + 1e-9)).round();
    if [1.0, 2.0, 5.0, 10.0].contains(&digit) {
        format!("{}", (value * 100.0).round() / 100.0)
    } else {
        String::new()
    }
}

/// Label of an axis of numbers of jobs.
fn whole(value: f64) -> String {
    if (value - value.round()).abs() < 0.01 { format!("{value:.0}") } else { String::new() }
}

fn bytes(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{} MB", value / 1e6),
        value if value >= 1e3 => format!("{} kB", value / 1e3),
        value => format!("{value} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_without_a_value_are_marked() {
        let bar = |value, more_than| Bar { name: "a < b".into(), value, more_than, paper: Some(0.9) };
        let value = MedianRange { median: 1.0, min: 0.9, max: 1.2 };
        let bars = vec![bar(Some(value), None), bar(None, Some(45.0)), bar(None, None)];
        let svg = super::bars(&Bars { title: "t", unit: "s", groups: vec![("in core".into(), bars)] });
        assert!(svg.contains("&gt; 45.0") && svg.contains("none") && svg.contains("a &lt; b"), "{svg}");
    }

    #[test]
    fn curves_without_points_say_so() {
        let lines = Lines { title: "", across: "", unit: "", log_across: true, lines: Vec::new() };
        assert!(super::lines(&lines).contains("nothing was measured"));
    }
}
