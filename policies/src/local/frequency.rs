//! Communication frequency of a task (thesis §2.2.1 and formulas 2.10-2.12).
//!
//! The current frequency is that of the prototype (thesis §3.5.1): messages waiting to be received when the
//! task is queued, and messages sent during its last execution. So no sampling interval is needed.

use serde::{Deserialize, Serialize};

/// Current counts and smoothed frequencies, in messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Frequency {
    /// Messages waiting for the task (its RMQ).
    pub waiting: u32,
    /// Messages sent since the task last got the processor (its SMQ).
    pub sent: u32,
    received: f64,
    sending: f64,
}

impl Frequency {
    /// Smooths the current counts into the frequencies; `past_weight` is the paper's `P`, in 0..=1.
    pub fn update(&mut self, past_weight: f64) {
        let smooth = |past: f64, current: u32| past_weight * past + (1.0 - past_weight) * f64::from(current);
        self.received = smooth(self.received, self.waiting);
        self.sending = smooth(self.sending, self.sent);
    }

    /// `freq_r`, as of the last [`Frequency::update`].
    #[must_use]
    pub const fn received(&self) -> f64 {
        self.received
    }

    /// `freq = freq_r + freq_s`, as of the last [`Frequency::update`].
    #[must_use]
    pub fn both(&self) -> f64 {
        self.received + self.sending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_past_weighs_as_much_as_the_weight_says() {
        let mut frequency = Frequency { waiting: 4, sent: 2, ..Frequency::default() };
        frequency.update(0.0);
        assert_eq!((frequency.received(), frequency.both()), (4.0, 6.0));
        (frequency.waiting, frequency.sent) = (0, 0);
        frequency.update(0.5);
        assert_eq!((frequency.received(), frequency.both()), (2.0, 3.0));
    }
}
