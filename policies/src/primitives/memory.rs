//! The node's side of the primitives: its global memory, and the operation that waits for its decision.
//!
//! ```text
//!   free ─Ask: holds─▶ held ─Decide─▶ free
//!     └──Ask: refused──▶ free
//! ```

use std::collections::BTreeMap;

use super::{
    Address, Answer, BLOCKS_MAX, FOLLOWED, Members, Message, Number, Operation, Report, Request, Roster,
    SharedBytes, Value,
};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    values: BTreeMap<Address, Value>,
    /// Of the master that is obeyed.
    generation: u64,
    roster: Roster,
    /// The last operation that was asked.
    last: Number,
    /// Of the last request to forget.
    forgot: Number,
    held: Option<Held>,
    /// Of the operations that may not be over everywhere.
    decided: BTreeMap<Number, bool>,
    /// What the node has made of the word that a held operation has compared.
    kept_back: Option<i64>,
}

#[derive(Clone, Debug)]
struct Held {
    number: Number,
    nodes: Members,
    operation: Operation,
}

impl Memory {
    /// What lies at an address.
    #[must_use]
    pub fn value(&self, address: Address) -> Option<&Value> {
        self.values.get(&address)
    }

    /// The same, where it is a word.
    #[must_use]
    pub fn word(&self, address: Address) -> Option<i64> {
        match self.values.get(&address)? {
            Value::Word(word) => Some(*word),
            Value::Block(_) => None,
        }
    }

    /// The node changes a word of its own. It waits where an operation has compared the word and is not
    /// decided.
    pub fn set(&mut self, address: Address, word: i64) {
        if self.is_compared(address) {
            self.kept_back = Some(word);
        } else {
            self.values.insert(address, Value::Word(word));
        }
    }

    /// The node takes a block of its own: nothing lies at the address any more.
    pub fn take(&mut self, address: Address) -> Option<SharedBytes> {
        match self.values.remove(&address)? {
            Value::Block(bytes) => Some(bytes),
            word @ Value::Word(_) => {
                self.values.insert(address, word);
                None
            }
        }
    }

    /// TEST-EVENT: takes a signal of this event, if there is one.
    pub fn test_event(&mut self, event: Address) -> bool {
        match self.word(event) {
            Some(signals) if signals > 0 && !self.is_compared(event) => {
                self.values.insert(event, Value::Word(signals - 1));
                true
            }
            _ => false,
        }
    }

    fn is_compared(&self, address: Address) -> bool {
        let compared = self.held.as_ref().map(|held| &held.operation);
        matches!(compared, Some(Operation::Compare { variable, .. }) if *variable == address)
    }

    /// A message of a master. There is no answer to one that is not obeyed.
    pub fn on_message(&mut self, message: Message) -> Option<Answer> {
        let Message { generation, request } = message;
        if generation < self.generation {
            return None;
        }
        self.generation = generation;
        self.set(FOLLOWED, generation.cast_signed());
        match request {
            Request::Describe => Some(self.report()),
            Request::Forget { number } => {
                if number > self.forgot {
                    *self = Self { generation, last: self.last, forgot: number, ..Self::default() };
                }
                Some(self.report())
            }
            Request::Admit(roster) => {
                if roster.generation > self.roster.generation {
                    self.roster = roster;
                }
                None
            }
            Request::Ask { number, nodes, operation, open_from, kept } => {
                self.decided.retain(|decided, _| *decided >= open_from || kept.contains(decided));
                self.on_ask(number, nodes, operation)
            }
            Request::Decide { number, carries_out } => self.on_decide(number, carries_out),
        }
    }

    fn report(&self) -> Answer {
        let held = self.held.as_ref().map(|held| (held.number, held.nodes.clone()));
        let report = Report { roster: self.roster.clone(), held, decided: self.decided.clone() };
        Answer::Holds(Box::new(report))
    }

    fn on_ask(&mut self, number: Number, nodes: Members, operation: Operation) -> Option<Answer> {
        if number <= self.last {
            // Asked again: it is held, was refused, or was decided long ago.
            let is_held = self.held.as_ref().is_some_and(|held| held.number == number);
            let is_refused = self.decided.get(&number) == Some(&false);
            return (is_held || is_refused).then_some(Answer::Answered { number, holds: is_held });
        }
        self.last = number;
        // A master decides one operation before it asks for the next one.
        let holds = self.held.is_none() && self.can_carry_out(&operation);
        if operation.changes_memory() {
            if holds {
                self.held = Some(Held { number, nodes, operation });
            } else {
                self.decided.insert(number, false);
            }
        }
        Some(Answer::Answered { number, holds })
    }

    fn can_carry_out(&self, operation: &Operation) -> bool {
        match operation {
            Operation::Transfer { to, value, .. } => {
                let others = self.values.iter().filter(|(address, _)| *address != to);
                others.map(|(_, value)| value.bytes()).sum::<usize>() + value.bytes() <= BLOCKS_MAX
            }
            Operation::Compare { variable, comparison, value, .. } => {
                self.word(*variable).is_some_and(|word| comparison.holds(word, *value))
            }
        }
    }

    fn on_decide(&mut self, number: Number, carries_out: bool) -> Option<Answer> {
        if let Some(held) = self.held.take_if(|held| held.number == number) {
            self.decided.insert(number, carries_out);
            let compared = match held.operation {
                Operation::Compare { variable, .. } => Some(variable),
                Operation::Transfer { .. } => None,
            };
            if carries_out {
                self.carry_out(held.operation);
            }
            if let Some((variable, word)) = compared.zip(self.kept_back.take()) {
                self.set(variable, word);
            }
        } else if !carries_out {
            // Others were asked, perhaps, and one of them is lost.
            self.decided.entry(number).or_insert(false);
        }
        Some(Answer::Decided { number })
    }

    fn carry_out(&mut self, operation: Operation) {
        match operation {
            Operation::Transfer { to, value, signal } => {
                self.values.insert(to, value);
                if let Some(event) = signal {
                    let signals = self.word(event).unwrap_or_default();
                    self.values.insert(event, Value::Word(signals.saturating_add(1)));
                }
            }
            Operation::Compare { write: Some((address, word)), .. } => {
                self.values.insert(address, Value::Word(word));
            }
            Operation::Compare { write: None, .. } => {}
        }
    }
}

impl Value {
    fn bytes(&self) -> usize {
        match self {
            Self::Word(_) => 0,
            Self::Block(bytes) => bytes.len(),
        }
    }
}
