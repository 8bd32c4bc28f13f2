//! First come, first served (paper 000 §2.6): the head waits for its nodes, and all other jobs wait for the
//! head.

use std::collections::VecDeque;

use super::{QueueOrder, QueuedJob};
use crate::{JobId, SimTime, spaceshare::machine::Machine};

#[derive(Clone, Debug, Default)]
pub struct Fcfs {
    waiting: VecDeque<QueuedJob>,
}

impl QueueOrder for Fcfs {
    fn submit(&mut self, job: QueuedJob) {
        self.waiting.push_back(job);
    }

    fn adopt(&mut self, _: SimTime, _: QueuedJob, _: SimTime, _: &Machine) {}

    fn withdraw(&mut self, job: JobId) -> bool {
        let place = self.waiting.iter().position(|waiting| waiting.job == job);
        place.and_then(|place| self.waiting.remove(place)).is_some()
    }

    fn on_end(&mut self, _: SimTime, _: JobId) {}

    fn start(&mut self, now: SimTime, machine: &mut Machine, started: &mut Vec<QueuedJob>) {
        while let Some(&head) = self.waiting.front()
            && machine.place(now, head.job, head.group, head.request)
        {
            self.waiting.pop_front();
            started.push(head);
        }
    }

    fn next_wake(&self, now: SimTime, machine: &Machine) -> Option<SimTime> {
        if self.waiting.is_empty() { None } else { machine.next_change(now) }
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spaceshare::{allocate::FirstFit, queue::waiting_job};

    #[test]
    fn no_job_overtakes_the_head_of_the_queue() {
        let mut machine = Machine::single(Box::new(FirstFit::new(8)));
        let (mut queue, mut started) = (Fcfs::default(), Vec::new());
        [waiting_job(0, 6, 1), waiting_job(1, 4, 1), waiting_job(2, 1, 1)]
            .into_iter()
            .for_each(|job| queue.submit(job));
        queue.start(SimTime(0), &mut machine, &mut started);
        assert_eq!(started.iter().map(|job| job.job.0).collect::<Vec<_>>(), [0]);
        assert!(machine.release(JobId(0)));
        queue.on_end(SimTime(1), JobId(0));
        queue.start(SimTime(1), &mut machine, &mut started);
        assert_eq!(started.iter().map(|job| job.job.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!((queue.waiting(), machine.free()), (0, 3));
    }
}
