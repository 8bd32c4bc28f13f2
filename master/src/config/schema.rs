//! The JSON Schema of the run file, for editors and for the check of its shape.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::file::RunFile;

/// The schema, generated from the types that read the file.
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<RunFile>();
    schema.insert("title".into(), "coswitch run file".into());
    schema.to_value()
}

/// The text of the schema, as `coswitch schema` prints it.
pub fn schema_text() -> String {
    let text = serde_json::to_string_pretty(&schema()).expect("a JSON value can be written");
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_schema_is_current() {
        let shipped = include_str!("../../coswitch.schema.json");
        assert!(
            shipped == schema_text(),
            "master/coswitch.schema.json is out of date: run `coswitch schema > master/coswitch.schema.json`"
        );
    }
}
