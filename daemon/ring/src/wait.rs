//! How a rank waits for messages: a policy of the job, changed by the daemon while the rank runs.

/// What a rank does when it polls and nothing has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum WaitPolicy {
    /// Poll without pause, as stock MPI libraries do.
    Spin = 0,
    /// Poll, giving the core away between polls.
    Yield = 1,
    /// Sleep on the bell at once.
    Block = 2,
    /// Poll for about as long as a sleep and wake-up would cost, then sleep (competitive spinning).
    #[default]
    SpinBlock = 3,
}

impl WaitPolicy {
    /// The policy of a stored number; an unknown one (newer writer, damage) is the default.
    pub fn from_raw(raw: u32) -> WaitPolicy {
        match raw {
            0 => WaitPolicy::Spin,
            1 => WaitPolicy::Yield,
            2 => WaitPolicy::Block,
            _ => WaitPolicy::SpinBlock,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_survives_its_number() {
        for policy in [WaitPolicy::Spin, WaitPolicy::Yield, WaitPolicy::Block, WaitPolicy::SpinBlock] {
            assert_eq!(WaitPolicy::from_raw(policy as u32), policy);
        }
        assert_eq!(WaitPolicy::from_raw(77), WaitPolicy::SpinBlock);
    }
}
