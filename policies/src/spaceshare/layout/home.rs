//! Home of a job: the queue in which it waits, by the names that its user gives.

use thiserror::Error;

use super::{Layout, QueueLayout};
use crate::spaceshare::{machine::GroupId, queue::QueueId};

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HomeError {
    #[error("there is no {what} `{name}`; there are {known}")]
    Unknown { what: &'static str, name: String, known: String },
    #[error("the queue `{queue}` has the nodes of the group `{has}`, not those of `{group}`")]
    OtherGroup { queue: String, has: String, group: String },
    #[error("no queue has the nodes of the group `{0}`")]
    NoQueue(String),
}

impl Layout {
    /// The queue of a job: the named one, else the first of the named group, else the first of all.
    ///
    /// # Errors
    /// Where the queue or the group that the job names does not exist.
    pub fn home(&self, queue: Option<&str>, group: Option<&str>) -> Result<QueueId, HomeError> {
        let listed = |names: Vec<&str>| names.join(", ");
        if let Some(name) = group.filter(|name| self.groups.iter().all(|group| group.name != **name)) {
            let known = listed(self.groups.iter().map(|group| group.name.as_str()).collect());
            return Err(HomeError::Unknown { what: "group", name: name.into(), known });
        }
        let place = |is_it: &dyn Fn(&QueueLayout) -> bool| {
            self.queues.iter().position(is_it).map(|place| QueueId(u16::try_from(place).unwrap_or(u16::MAX)))
        };
        match (queue, group) {
            (None, None) => Ok(QueueId(0)),
            (None, Some(group)) => {
                place(&|queue| queue.group == group).ok_or_else(|| HomeError::NoQueue(group.into()))
            }
            (Some(name), group) => {
                let known = || listed(self.queues.iter().map(|queue| queue.name.as_str()).collect());
                let unknown = || HomeError::Unknown { what: "queue", name: name.into(), known: known() };
                let found = place(&|queue| queue.name == name).ok_or_else(unknown)?;
                let has = &self.queues[usize::from(found.0)].group;
                match group.filter(|group| has != *group) {
                    None => Ok(found),
                    Some(group) => {
                        let (queue, has, group) = (name.into(), has.clone(), group.into());
                        Err(HomeError::OtherGroup { queue, has, group })
                    }
                }
            }
        }
    }

    /// The group of a queue.
    #[must_use]
    pub fn group_of(&self, queue: QueueId) -> GroupId {
        let name = self.queues.get(usize::from(queue.0)).map(|queue| &queue.group);
        let place = self.groups.iter().position(|group| Some(&group.name) == name).unwrap_or(0);
        GroupId(u16::try_from(place).unwrap_or(0))
    }

    /// Whether `queue` admits jobs of this size.
    #[must_use]
    pub fn admits(&self, queue: QueueId, nodes: u32) -> bool {
        let most = self.queues.get(usize::from(queue.0)).and_then(|queue| queue.nodes);
        most.is_none_or(|most| nodes <= most)
    }
}
