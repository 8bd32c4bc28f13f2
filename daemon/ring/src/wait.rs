//! Wait policy: how the ranks of a job wait for messages. The daemon may change it while they run.

/// Action of a rank after polls that found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum WaitPolicy {
    /// Polls without a pause, as stock MPI libraries do.
    Spin = 0,
    /// Polls, and yields the core between polls.
    Yield = 1,
    /// Sleeps on the bell at once.
    Block = 2,
    /// Polls for about as long as a sleep and wake-up would cost, then sleeps (competitive spinning).
    #[default]
    SpinBlock = 3,
}

impl WaitPolicy {
    /// Decodes a stored number; an unknown one (newer writer, damage) gives the default.
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
    fn every_policy_is_decoded_from_its_number() {
        for policy in [WaitPolicy::Spin, WaitPolicy::Yield, WaitPolicy::Block, WaitPolicy::SpinBlock] {
            assert_eq!(WaitPolicy::from_raw(policy as u32), policy);
        }
        assert_eq!(WaitPolicy::from_raw(77), WaitPolicy::SpinBlock);
    }
}
