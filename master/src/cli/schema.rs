//! `coswitch schema`: the JSON Schema of a run file, for editors.

use std::io::Write;

use anyhow::Context;

use super::{Exit, Failure};

/// Print the JSON Schema of a run file, for editors.
#[derive(Debug, clap::Args)]
pub(crate) struct SchemaCommand;

impl SchemaCommand {
    /// Prints the schema, which is JSON with every `--output`.
    pub(crate) fn carry_out(self) -> Result<Exit, Failure> {
        let mut out = std::io::stdout().lock();
        out.write_all(crate::config::schema_text().as_bytes()).context("failed to print the schema")?;
        Ok(Exit::Done)
    }
}
