//! Table 4.1 of Solsona's thesis, measured and beside the printed one.
//!
//! `cargo run --release -p coswitch-sim --example table_4_1 -- [SEEDS [SERVED [THREADS [GRAIN]]]]`

use std::io::Write;

use coswitch_sim::local::{
    Crowding, Shape,
    models::Column,
    table::{Table, TableOptions, table_4_1},
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, default: f64| arguments.get(place).map_or(Ok(default), |text| text.parse());
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small counts, typed by hand")]
    let (seeds, served, threads) =
        (number(0, 5.0)? as u64, number(1, 10_000.0)? as u32, number(2, 2.0)? as usize);
    for crowding in [Crowding::Share, Crowding::TurnLocal] {
        let shape = Shape { crowding, served, grain: number(3, Shape::default().grain)?, ..Shape::default() };
        let table = table_4_1(&TableOptions { shape, seeds: (1..=seeds).collect(), threads })?;
        print(&table, served, &mut std::io::stdout().lock())?;
    }
    Ok(())
}

fn print(table: &Table, served: u32, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(
        out,
        "{:?}: {} runs, {} seeds, {served} tasks served each\n",
        table.crowding, table.runs, table.seeds
    )?;
    write!(out, "| parameter |")?;
    Column::ALL.iter().try_for_each(|column| write!(out, " {column} |"))?;
    writeln!(out, "\n| --- | --- | --- | --- | --- | --- | --- |")?;
    for row in &table.rows {
        write!(out, "| {} |", row.parameter)?;
        for (cell, printed) in row.cells.iter().zip(row.parameter.of_thesis()) {
            match (cell, printed) {
                (Some(cell), Some(printed)) => {
                    let mark = match cell.trend {
                        own if own == printed => "",
                        own if own.is_other_way(printed) => " ✗",
                        _ => " ~",
                    };
                    let half = cell.effect.half_width.unwrap_or(f64::NAN);
                    write!(out, " {} ({printed}){mark} {:+.3}±{half:.3} |", cell.trend, cell.effect.mean)?;
                }
                _ => write!(out, " - |")?,
            }
        }
        writeln!(out)?;
    }
    writeln!(out)?;
    for row in &table.rows {
        for (column, cell) in Column::ALL.iter().zip(&row.cells) {
            let Some(cell) = cell else { continue };
            let levels: Vec<_> = cell.levels.iter().map(|level| format!("{:+.3}", level.mean)).collect();
            writeln!(out, "{} {column}: {}", row.parameter, levels.join("  "))?;
        }
    }
    writeln!(out)
}
