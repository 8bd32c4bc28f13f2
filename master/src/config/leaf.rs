//! The single values of a run file, each with its position in the text.
//!
//! A leaf is stored as text and parsed later, by [`Leaf::read`], so that a wrong unit in one field does not
//! hide a wrong unit in another. [`Quantity`] defines the values of a leaf once, for the reader and for the
//! schema.

use std::{borrow::Cow, marker::PhantomData, time::Duration};

use coswitch_daemon::processors;
use coswitch_policies::{Bytes, Rate, local::explicit::PowerWeight, parse_duration};
use miette::SourceSpan;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use serde_yaml::Spanned;

use super::{
    job_set::{NODES_MAX, PRIORITY_MAX},
    problem::Problem,
    tree::span_at,
};

/// A type that can be read from one value of a run file.
pub trait Quantity: Sized {
    /// The name of the type in the schema.
    const NAME: &'static str;

    /// Parses the text.
    ///
    /// # Errors
    /// Says what is wrong and how to correct it.
    fn read(text: &str) -> Result<Self, Misread>;

    fn schema() -> Schema;
}

/// Why a value cannot be parsed.
#[derive(Debug, PartialEq, Eq)]
pub struct Misread {
    pub message: String,
    /// How to correct it.
    pub help: Option<String>,
}

impl<E: std::error::Error> From<E> for Misread {
    fn from(error: E) -> Self {
        Self { message: error.to_string(), help: None }
    }
}

/// A value of type `T` as written in the file.
#[derive(Debug)]
pub struct Leaf<T> {
    text: Spanned<String>,
    of: PhantomData<T>,
}

impl<T: Quantity> Leaf<T> {
    /// The value, or the problem with it.
    pub fn read(&self, field: &str) -> Result<T, Problem> {
        T::read(&self.text.value).map_err(|Misread { message, help }| Problem {
            field: field.into(),
            span: self.span(),
            message,
            help,
        })
    }

    pub fn text(&self) -> &str {
        &self.text.value
    }

    pub fn span(&self) -> SourceSpan {
        span_at(&self.text.referenced)
    }
}

impl<'de, T> Deserialize<'de> for Leaf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::deserialize(deserializer).map(|text| Self { text, of: PhantomData })
    }
}

impl<T: Quantity> JsonSchema for Leaf<T> {
    fn schema_name() -> Cow<'static, str> {
        T::NAME.into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        T::schema()
    }
}

impl Quantity for String {
    const NAME: &'static str = "Text";
    fn read(text: &str) -> Result<Self, Misread> {
        Ok(text.into())
    }
    fn schema() -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"] })
    }
}

impl Quantity for u32 {
    const NAME: &'static str = "Number";
    fn read(text: &str) -> Result<Self, Misread> {
        text.parse().map_err(|_| Misread {
            message: format!("`{text}` is not a whole number from 1 to {}", Self::MAX),
            help: None,
        })
    }
    fn schema() -> Schema {
        json_schema!({ "type": "integer", "minimum": 1, "maximum": u32::MAX })
    }
}

impl Quantity for f64 {
    const NAME: &'static str = "Fraction";
    fn read(text: &str) -> Result<Self, Misread> {
        let number = text.trim().parse().ok().filter(|number: &Self| number.is_finite());
        number.ok_or_else(|| Misread { message: format!("`{text}` is not a number"), help: None })
    }
    fn schema() -> Schema {
        json_schema!({ "type": "number" })
    }
}

impl Quantity for bool {
    const NAME: &'static str = "Truth";
    fn read(text: &str) -> Result<Self, Misread> {
        text.trim()
            .parse()
            .map_err(|_| Misread { message: format!("`{text}` is not `true` or `false`"), help: None })
    }
    fn schema() -> Schema {
        json_schema!({ "type": "boolean" })
    }
}

/// How many copies there are, perhaps none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies(pub u32);

impl Quantity for Copies {
    const NAME: &'static str = "Copies";
    fn read(text: &str) -> Result<Self, Misread> {
        let number = text.parse().ok().filter(|number| *number < NODES_MAX);
        number.map(Self).ok_or_else(|| Misread {
            message: format!("`{text}` is not a number of copies from 0 to {}", NODES_MAX - 1),
            help: Some("each copy is on another node".into()),
        })
    }
    fn schema() -> Schema {
        json_schema!({ "type": "integer", "minimum": 0, "maximum": NODES_MAX - 1 })
    }
}

/// The priority of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Priority(pub i32);

impl Quantity for Priority {
    const NAME: &'static str = "Priority";
    fn read(text: &str) -> Result<Self, Misread> {
        let number = text.parse().ok().filter(|number: &i32| (-PRIORITY_MAX..=PRIORITY_MAX).contains(number));
        number.map(Self).ok_or_else(|| Misread {
            message: format!("`{text}` is not a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}"),
            help: Some("jobs have priority 0 where nothing else is said; the higher one comes first".into()),
        })
    }
    fn schema() -> Schema {
        json_schema!({ "type": "integer", "minimum": -PRIORITY_MAX, "maximum": PRIORITY_MAX })
    }
}

/// Processors of a machine, by their numbers, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processors(pub Vec<usize>);

impl Quantity for Processors {
    const NAME: &'static str = "Processors";
    fn read(text: &str) -> Result<Self, Misread> {
        Ok(Self(processors::parse_list(text)?))
    }
    fn schema() -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "pattern": "^\\s*[0-9]+(-[0-9]+)?(\\s*,\\s*[0-9]+(-[0-9]+)?)*\\s*$",
            "minimum": 0, "examples": ["0-7,16-23"],
        })
    }
}

impl Quantity for PowerWeight {
    const NAME: &'static str = "PowerWeight";
    fn read(text: &str) -> Result<Self, Misread> {
        let weight = text.trim().parse::<f64>().ok().and_then(|weight| Self::try_from(weight).ok());
        weight.ok_or_else(|| Misread {
            message: format!("`{text}` is not a speed by that of the fastest host, above 0 and not above 1"),
            help: Some(
                "write `1` for the fastest host, and `0.5` for one that takes twice as long for the same \
                 program"
                    .into(),
            ),
        })
    }
    fn schema() -> Schema {
        json_schema!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1, "examples": [0.5] })
    }
}

impl Quantity for Bytes {
    const NAME: &'static str = "Bytes";
    fn read(text: &str) -> Result<Self, Misread> {
        Ok(text.parse()?)
    }
    fn schema() -> Schema {
        json_schema!({
            "type": "string", "pattern": "^\\s*[0-9.]+\\s*([KkMmGgTt][Ii]?)?[Bb]\\s*$",
            "examples": ["300MiB", "1GiB"],
        })
    }
}

impl Quantity for Rate {
    const NAME: &'static str = "Rate";
    fn read(text: &str) -> Result<Self, Misread> {
        Ok(text.parse()?)
    }
    fn schema() -> Schema {
        json_schema!({
            "type": "string", "pattern": "^\\s*[0-9.]+\\s*[KkMmGg]?[Bb][Ii][Tt]\\s*$",
            "examples": ["100Mbit"],
        })
    }
}

impl Quantity for Duration {
    const NAME: &'static str = "Duration";
    fn read(text: &str) -> Result<Self, Misread> {
        Ok(parse_duration(text)?)
    }
    fn schema() -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^\\s*[0-9.]+\\s*([Uu][Ss]|[Mm][Ss]|[Ss]|[Mm]|[Mm][Ii][Nn]|[Hh]|[Dd])\\s*$",
            "examples": ["10s", "250ms"],
        })
    }
}

/// A mean time between failures, or `never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BetweenFailures(pub Option<Duration>);

impl Quantity for BetweenFailures {
    const NAME: &'static str = "BetweenFailures";
    fn read(text: &str) -> Result<Self, Misread> {
        if text.trim() == "never" {
            return Ok(Self(None));
        }
        let help = Some("write a time such as `7d`, or `never`, which makes no checkpoints".to_owned());
        let time = parse_duration(text);
        let time = time.map_err(|error| Misread { message: error.to_string(), help: help.clone() })?;
        if time < Duration::from_secs(1) {
            return Err(Misread { message: "a node that fails so often cannot run a job".into(), help });
        }
        Ok(Self(Some(time)))
    }
    fn schema() -> Schema {
        json_schema!({ "anyOf": [{ "const": "never" }, <Duration as Quantity>::schema()] })
    }
}

/// A fraction, written in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percent(pub f64);

impl Quantity for Percent {
    const NAME: &'static str = "Percent";
    fn read(text: &str) -> Result<Self, Misread> {
        let number = text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        match number {
            Some(percent) if percent > 0.0 && percent < 100.0 => Ok(Self(percent / 100.0)),
            _ => Err(Misread {
                message: format!("`{text}` is not a share between 0% and 100%"),
                help: Some("write for example `2%`".into()),
            }),
        }
    }
    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^\\s*[0-9.]+\\s*%\\s*$", "examples": ["2%"] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_written_in_percent() {
        assert_eq!(Percent::read("2%"), Ok(Percent(0.02)));
        for wrong in ["2", "0%", "120%", "some%"] {
            assert!(Percent::read(wrong).is_err(), "{wrong}");
        }
    }
}
