//! The node scheduler of a run file: its technique with parameters that are within their bounds.

use std::{fmt::Debug, ops::RangeInclusive, time::Duration};

use coswitch_policies::local::{
    Buffering, DtsMode, Technique,
    explicit::{LoadRule, Slices},
    flexible::Thresholds,
};
use miette::SourceSpan;
use serde_yaml::Spanned;

use super::Reader;
use crate::config::{
    choice::{DtsWord, Local},
    leaf::{Leaf, Misread, Quantity},
    problem::Problem,
    technique::{
        BcsPart, DcsPart, DtsPart, FcsPart, IcsPart, LocalPart, OvertakingPart, SlicePart, TechniquePart,
    },
    tree::span_at,
};

const FIELD: &str = "scheduler.local";
const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// Shorter ones go by in deciding, and a longer one lets a person at the node wait.
const SLICE: RangeInclusive<Duration> = Duration::from_micros(100)..=Duration::from_secs(10);
const SHARE: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(10);
/// No credit at all is no bound.
const CREDIT: RangeInclusive<Duration> = MS..=Duration::from_secs(3600);
const SPIN: RangeInclusive<Duration> = Duration::ZERO..=S;
const COUNT: RangeInclusive<u32> = 1..=1000;
const MESSAGES: RangeInclusive<u32> = 1..=1_000_000;
const WEIGHT: RangeInclusive<f64> = 0.0..=1.0;
/// A tenth of the shortest period is a look at the ranks.
const PERIOD: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(10);
const PART: RangeInclusive<Duration> = MS..=Duration::from_secs(10);
const SAMPLE_EVERY: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);
const TASKS: RangeInclusive<f64> = 0.0..=100.0;
const WAIT: RangeInclusive<Duration> = US..=Duration::from_secs(10);
const RATIO: RangeInclusive<f64> = 1.0..=1000.0;

/// Where a file says how often messages are exchanged.
pub(super) fn exchanges(part: &Spanned<LocalPart>) -> Option<&Leaf<u32>> {
    let LocalPart::Parameters(part) = &part.value else { return None };
    part.bcs.as_ref()?.exchanges.as_ref()
}

impl Reader {
    /// The scheduler of each node; none: the kernel's own.
    pub(super) fn local(&mut self, part: &Spanned<LocalPart>) -> Option<Technique> {
        let span = span_at(&part.referenced);
        match &part.value {
            LocalPart::Word(word) => match Local::read(word) {
                Ok(Local(technique)) => technique,
                Err(Misread { message, help }) => {
                    self.refuse(Problem { field: FIELD.into(), span, message, help });
                    None
                }
            },
            LocalPart::Parameters(part) => self.technique(part, span),
        }
    }

    fn technique(&mut self, part: &TechniquePart, span: SourceSpan) -> Option<Technique> {
        let TechniquePart { dcs, ics, predictive, dynamic, hpdt, dts, fcs, bcs, round_robin } = part;
        let mut given = Vec::new();
        given.extend(dcs.as_ref().map(|part| self.of("dcs").dcs(part)));
        given.extend(ics.as_ref().map(|part| self.of("ics").ics(part)));
        given.extend(predictive.as_ref().map(|part| self.of("predictive").predictive(part)));
        given.extend(dynamic.as_ref().map(|part| self.of("dynamic").dynamic(part)));
        given.extend(hpdt.as_ref().map(|part| self.of("hpdt").sliced(part, Technique::HPDT)));
        given.extend(dts.as_ref().map(|part| self.of("dts").dts(part)));
        given.extend(fcs.as_ref().map(|part| self.of("fcs").fcs(part)));
        given.extend(bcs.as_ref().map(|part| self.of("bcs").bcs(part)));
        let lin = |part| self.of("round-robin").sliced(part, Technique::ROUND_ROBIN);
        given.extend(round_robin.as_ref().map(lin));
        if let [one] = given[..] {
            return Some(one);
        }
        let message = format!("{} techniques stand where one belongs", given.len());
        self.refuse(Problem::new(FIELD, span, message).help(
            "write one with its parameters, for example `dcs: {share: 200us}`, or a word alone, `local: dcs`",
        ));
        None
    }

    const fn of(&mut self, name: &'static str) -> Parameters<'_> {
        Parameters { reader: self, technique: name }
    }
}

/// Reads the parameters of one technique.
struct Parameters<'a> {
    reader: &'a mut Reader,
    technique: &'static str,
}

impl Parameters<'_> {
    fn field(&self, name: &str) -> String {
        format!("{FIELD}.{}.{name}", self.technique)
    }

    fn read<T: Quantity>(&mut self, name: &str, leaf: Option<&Leaf<T>>) -> Option<T> {
        let field = self.field(name);
        leaf.and_then(|leaf| self.reader.read(&field, leaf))
    }

    /// Sets a parameter that the file gives and that is within its bounds.
    fn set<T: Quantity + PartialOrd + Debug>(
        &mut self,
        name: &str,
        leaf: Option<&Leaf<T>>,
        value: &mut T,
        bounds: &RangeInclusive<T>,
    ) {
        let (Some(leaf), Some(read)) = (leaf, self.read(name, leaf)) else { return };
        if bounds.contains(&read) {
            *value = read;
            return;
        }
        let message = format!("`{}` is not from {:?} to {:?}", leaf.text(), bounds.start(), bounds.end());
        let problem = Problem::new(self.field(name), leaf.span(), message);
        self.reader.refuse(problem.help(format!("write one within these bounds, or leave `{name}` out")));
    }

    fn dcs(&mut self, part: &DcsPart) -> Technique {
        let mut technique = Technique::DCS;
        if let Technique::Dcs { slice, share, credit_max } = &mut technique {
            self.set("slice", part.slice.as_ref(), slice, &SLICE);
            self.set("share", part.share.as_ref(), share, &SHARE);
            self.set("credit_max", part.credit_max.as_ref(), credit_max, &CREDIT);
        }
        technique
    }

    fn ics(&mut self, part: &IcsPart) -> Technique {
        let mut technique = Technique::ICS;
        if let Technique::Ics { slice, spin, switches, is_woken_first } = &mut technique {
            self.set("slice", part.slice.as_ref(), slice, &SLICE);
            self.set("switches", part.switches.as_ref(), switches, &COUNT);
            if part.spin.is_some() {
                self.set("spin", part.spin.as_ref(), spin.get_or_insert_default(), &SPIN);
            }
            *is_woken_first = self.read("woken_first", part.woken_first.as_ref()).unwrap_or(*is_woken_first);
        }
        if let (Some(spin), Some(_)) = (&part.spin, &part.switches) {
            let message = "`switches` says as well how long a rank spins";
            let problem = Problem::new(self.field("spin"), spin.span(), message);
            self.reader.refuse(problem.help("leave one of the two out"));
        }
        technique
    }

    fn predictive(&mut self, part: &OvertakingPart) -> Technique {
        let mut technique = Technique::PREDICTIVE;
        if let Technique::Predictive { slice, overtakes_max, past_weight } = &mut technique {
            self.overtaking(part, (slice, overtakes_max, past_weight));
        }
        technique
    }

    fn dynamic(&mut self, part: &OvertakingPart) -> Technique {
        let mut technique = Technique::DYNAMIC;
        if let Technique::Dynamic { slice, overtakes_max, past_weight } = &mut technique {
            self.overtaking(part, (slice, overtakes_max, past_weight));
        }
        technique
    }

    fn overtaking(
        &mut self,
        part: &OvertakingPart,
        (slice, overtakes_max, past_weight): (&mut Duration, &mut u32, &mut f64),
    ) {
        self.set("slice", part.slice.as_ref(), slice, &SLICE);
        self.set("overtakes_max", part.overtakes_max.as_ref(), overtakes_max, &COUNT);
        self.set("past_weight", part.past_weight.as_ref(), past_weight, &WEIGHT);
    }

    fn sliced(&mut self, part: &SlicePart, mut technique: Technique) -> Technique {
        if let Technique::Hpdt { slice } | Technique::RoundRobin { slice } = &mut technique {
            self.set("slice", part.slice.as_ref(), slice, &SLICE);
        }
        technique
    }

    fn bcs(&mut self, part: &BcsPart) -> Technique {
        let mut technique = Technique::BCS;
        if let Technique::Bcs { slice, buffering: Buffering { exchanges, dedicated } } = &mut technique {
            self.set("slice", part.slice.as_ref(), slice, &SLICE);
            self.set("exchanges", part.exchanges.as_ref(), exchanges, &COUNT);
            *dedicated = self.read("dedicated", part.dedicated.as_ref()).unwrap_or(*dedicated);
        }
        technique
    }

    fn fcs(&mut self, part: &FcsPart) -> Technique {
        let mut technique = Technique::FCS;
        if let Technique::Fcs { slice, trial_slots, forget_after, thresholds } = &mut technique {
            let Thresholds { rare, long_wait, high_ratio } = thresholds;
            self.set("slice", part.slice.as_ref(), slice, &SLICE);
            self.set("trial_slots", part.trial_slots.as_ref(), trial_slots, &COUNT);
            self.set("forget_after", part.forget_after.as_ref(), forget_after, &COUNT);
            self.set("rare", part.rare.as_ref(), rare, &MESSAGES);
            self.set("long_wait", part.long_wait.as_ref(), long_wait, &WAIT);
            self.set("high_ratio", part.high_ratio.as_ref(), high_ratio, &RATIO);
        }
        technique
    }

    fn dts(&mut self, part: &DtsPart) -> Technique {
        let word = self.read("mode", part.mode.as_ref()).unwrap_or(DtsWord::Distributed);
        self.refuse_of_other_modes(part, word);
        let mut technique = match word {
            DtsWord::Static => Technique::DTS_STATIC,
            DtsWord::Balanced => Technique::DTS_BALANCED,
            DtsWord::Distributed => Technique::DTS,
        };
        if let Technique::Dts { slice, mode, filling } = &mut technique {
            self.set("slice", part.slice.as_ref(), slice, &SLICE);
            *filling = self.read("filling", part.filling.as_ref()).unwrap_or(*filling);
            match mode {
                DtsMode::Static(Slices { parallel, local }) => {
                    self.set("parallel", part.parallel.as_ref(), parallel, &PART);
                    self.set("local", part.local.as_ref(), local, &PART);
                }
                DtsMode::Distributed { period, load } | DtsMode::Balanced { period, load } => {
                    let LoadRule { sample_every, samples, past_weight, threshold } = load;
                    self.set("period", part.period.as_ref(), period, &PERIOD);
                    self.set("sample_every", part.sample_every.as_ref(), sample_every, &SAMPLE_EVERY);
                    self.set("samples", part.samples.as_ref(), samples, &COUNT);
                    self.set("past_weight", part.past_weight.as_ref(), past_weight, &WEIGHT);
                    self.set("threshold", part.threshold.as_ref(), threshold, &TASKS);
                }
            }
        }
        technique
    }

    /// Parameters that the mode does not know.
    fn refuse_of_other_modes(&mut self, part: &DtsPart, mode: DtsWord) {
        let (fixed, by_load) = (&[DtsWord::Static][..], &[DtsWord::Balanced, DtsWord::Distributed][..]);
        let of_modes = [
            ("parallel", part.parallel.as_ref().map(Leaf::span), fixed),
            ("local", part.local.as_ref().map(Leaf::span), fixed),
            ("period", part.period.as_ref().map(Leaf::span), by_load),
            ("sample_every", part.sample_every.as_ref().map(Leaf::span), by_load),
            ("samples", part.samples.as_ref().map(Leaf::span), by_load),
            ("past_weight", part.past_weight.as_ref().map(Leaf::span), by_load),
            ("threshold", part.threshold.as_ref().map(Leaf::span), &[DtsWord::Balanced][..]),
        ];
        for (name, span, modes) in of_modes {
            let Some(span) = span.filter(|_| !modes.contains(&mode)) else { continue };
            let words: Vec<String> = modes.iter().map(|mode| format!("`mode: {}`", mode.word())).collect();
            let message = format!("the mode `{}` has no `{name}`", mode.word());
            let problem = Problem::new(self.field(name), span, message);
            self.reader.refuse(problem.help(format!("leave it out, or write {}", words.join(" or "))));
        }
    }
}
