//! Tags by which the master and a daemon know each other's words when other daemons pass them on: HMAC-SHA256
//! (RFC 2104).
//!
//! The master has a random secret while it lives, and from it a key for each node, which it sends to the
//! node's daemon when their session begins. A request that goes down the tree has a tag for each daemon that
//! is to carry it out, an answer that goes up has one of the daemon that gives it; numbers and incarnations
//! are tagged too. So a daemon on the way can neither order others anything, nor answer for them, nor repeat
//! what was said. What it keeps back goes by the session.

use std::fmt;

use coswitch_policies::NodeId;
use ring::{
    digest::{SHA256, digest},
    hmac::{self, HMAC_SHA256},
    rand::{SecureRandom, SystemRandom},
};
use serde::{Deserialize, Serialize};

const KEY_BYTES: usize = 32;

/// What the master and the daemons of one node alone know; of a master itself, what it alone knows.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagKey([u8; KEY_BYTES]);

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag([u8; 32]);

/// The SHA-256 of a message. The master computes it once for all receivers of the message.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Digest([u8; 32]);

/// What is tagged.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum Word {
    /// Asked of the daemon.
    Down { incarnation: u64, number: u64, asked: Digest },
    /// Said by the daemon.
    Up { incarnation: u64, number: u64, said: Digest },
}

impl fmt::Debug for TagKey {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("TagKey")
    }
}

impl Digest {
    /// # Panics
    /// Where the message is no plain data.
    #[must_use]
    pub fn of(message: &impl Serialize) -> Self {
        Self(digest(&SHA256, &encoded(message)).as_ref().try_into().expect("its length"))
    }
}

fn encoded(message: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(message).expect("plain data")
}

impl From<[u8; KEY_BYTES]> for TagKey {
    fn from(key: [u8; KEY_BYTES]) -> Self {
        Self(key)
    }
}

impl TagKey {
    /// Of a master.
    ///
    /// # Panics
    /// If the kernel gives no random bytes.
    #[must_use]
    pub fn random() -> Self {
        let mut key = [0; KEY_BYTES];
        SystemRandom::new().fill(&mut key).expect("the kernel has random bytes");
        Self(key)
    }

    /// The key that a master has with the daemons of a node.
    #[must_use]
    pub fn for_node(&self, node: NodeId) -> Self {
        Self(hmac::sign(&self.key(), &encoded(&node)).as_ref().try_into().expect("its length"))
    }

    #[must_use]
    pub fn tag(&self, word: &Word) -> Tag {
        Tag(hmac::sign(&self.key(), &encoded(word)).as_ref().try_into().expect("its length"))
    }

    #[must_use]
    pub fn confirms(&self, word: &Word, tag: &Tag) -> bool {
        hmac::verify(&self.key(), &encoded(word), &tag.0).is_ok()
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(HMAC_SHA256, &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_of_one_key_way_daemon_number_and_message() {
        let down =
            |incarnation, number, asked: &str| Word::Down { incarnation, number, asked: Digest::of(&asked) };
        let up = Word::Up { incarnation: 5, number: 1, said: Digest::of(&"a") };
        let master = TagKey::random();
        let keys =
            [master.for_node(NodeId(1)), master.for_node(NodeId(2)), TagKey::random().for_node(NodeId(1))];
        let words = [down(5, 1, "a"), up, down(6, 1, "a"), down(5, 2, "a"), down(5, 1, "b")];
        let tag = keys[0].tag(&words[0]);
        for (key, word) in (0..keys.len()).flat_map(|key| (0..words.len()).map(move |word| (key, word))) {
            assert_eq!(keys[key].confirms(&words[word], &tag), (key, word) == (0, 0), "{key} {word}");
        }
    }

    #[test]
    fn a_key_is_not_shown() {
        assert_eq!(format!("{:?}", TagKey::random()), "TagKey");
    }
}
