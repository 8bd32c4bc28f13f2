//! Table 4.1 and the comparison as Markdown.

use std::fmt::{self, Write};

use super::{
    compare::Compared,
    models::Column,
    table_4_1::{Cell, Row, Table},
    trend::Trend,
};
use crate::stats::SampleMean;

/// The measured table beside the printed one. A cell holds the measured class, the printed class in brackets,
/// `~` where they differ in strength and `≠` where they differ in direction, and the effect with its 95 %
/// interval.
#[must_use]
pub fn table_as_markdown(table: &Table) -> String {
    write_table(table).expect("writing to a string does not fail")
}

fn write_table(table: &Table) -> Result<String, fmt::Error> {
    let mut out = String::new();
    let header: Vec<_> = Column::ALL.iter().map(Column::to_string).collect();
    writeln!(out, "| parameter | {} |\n| --- | --- | --- | --- | --- | --- | --- |", header.join(" | "))?;
    for row in &table.rows {
        writeln!(out, "| {} | {} |", row.parameter, cells(row).join(" | "))?;
    }
    writeln!(
        out,
        "\n| at each level | {} |\n| --- | --- | --- | --- | --- | --- | --- |",
        header.join(" | ")
    )?;
    for row in &table.rows {
        let levels = row.cells.each_ref().map(|cell| cell.as_ref().map_or_else(|| "-".into(), levels));
        writeln!(out, "| {} | {} |", row.parameter, levels.join(" | "))?;
    }
    Ok(out)
}

fn cells(row: &Row) -> Vec<String> {
    let printed = row.parameter.of_thesis();
    row.cells.iter().zip(printed).map(|(cell, printed)| show(cell.as_ref(), printed)).collect()
}

fn show(cell: Option<&Cell>, printed: Option<Trend>) -> String {
    let (Some(cell), Some(printed)) = (cell, printed) else { return "-".into() };
    let mark = match cell.trend {
        own if own == printed => "",
        own if own.is_other_way(printed) => " ≠",
        _ => " ~",
    };
    format!("{} ({printed}){mark} {}", cell.trend, signed(cell.effect))
}

fn signed(effect: SampleMean) -> String {
    effect
        .half_width
        .map_or_else(|| format!("{:+.3}", effect.mean), |half| format!("{:+.3} ± {half:.3}", effect.mean))
}

fn levels(cell: &Cell) -> String {
    let levels: Vec<_> = cell.levels.iter().map(|level| format!("{:.2}", level.mean)).collect();
    levels.join(" ")
}

#[must_use]
pub fn comparison_as_markdown(rows: &[Compared]) -> String {
    let mut out = String::from(
        "| scheduler | SystemCoDe | Dret | Dwait | Lret | Lwait | SystemD per task | spinning |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        let Compared { distributed_return, distributed_wait, local_return, local_wait, delay, .. } = *row;
        let times = [distributed_return, distributed_wait, local_return, local_wait, delay];
        let numbers = times.map(|time| plain(time, 1));
        let degree = plain(row.coscheduling, 3);
        let line =
            format!("| {} | {degree} | {} | {} % |\n", row.name, numbers.join(" | "), plain(row.spun, 1));
        out.push_str(&line);
    }
    out
}

fn plain(number: SampleMean, digits: usize) -> String {
    let mean = format!("{:.digits$}", number.mean);
    number.half_width.map_or_else(|| mean.clone(), |half| format!("{mean} ± {half:.digits$}"))
}
