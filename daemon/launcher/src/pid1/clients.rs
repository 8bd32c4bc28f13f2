//! The PMI sockets of the ranks: non-blocking input and output of lines.
//!
//! A rank that sends without end, or reads no answer, delays only itself: of each, a few lines are taken at
//! a time, and none while many answers wait.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
};

use nix::poll::PollFlags;

/// Largest length of a line in bytes, far more than PMI needs.
const LINE_MAX: usize = 64 << 10;
/// Lines of a rank that are taken before the next rank's turn.
const LINES_AT_ONCE: usize = 64;
/// While so many bytes of answers wait for a rank, nothing is read from it.
const OUTPUT_MAX: usize = 64 << 10;

struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// The rank has closed its end.
    ended: bool,
}

/// All open sockets.
#[derive(Default)]
pub(super) struct Clients {
    by_rank: BTreeMap<u32, Client>,
}

impl Clients {
    pub(super) fn add(&mut self, rank: u32, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        self.by_rank.insert(rank, Client { stream, input: Vec::new(), output: Vec::new(), ended: false });
        Ok(())
    }

    /// Sockets to poll, and the conditions to poll for.
    pub(super) fn interests(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>, PollFlags)> {
        self.by_rank.iter().filter(|(_, client)| !client.ended).map(|(rank, client)| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, client.may_read());
            flags.set(PollFlags::POLLOUT, !client.output.is_empty());
            (*rank, client.stream.as_fd(), flags)
        })
    }

    /// Ranks with complete lines that were read and can be taken.
    pub(super) fn waiting(&self) -> Vec<u32> {
        let waiting =
            self.by_rank.iter().filter(|(_, client)| client.may_take() && client.input.contains(&b'\n'));
        waiting.map(|(rank, _)| *rank).collect()
    }

    /// Reads and writes, and returns complete lines, the first of them. Closes a socket that is at its end.
    pub(super) fn exchange(&mut self, rank: u32) -> Vec<String> {
        let Some(client) = self.by_rank.get_mut(&rank) else { return Vec::new() };
        client.ended = client.ended || !(client.fill() && client.flush());
        let lines = if client.may_take() { client.lines() } else { Vec::new() };
        if client.ended && lines.len() < LINES_AT_ONCE {
            self.by_rank.remove(&rank);
        }
        lines
    }

    pub(super) fn send(&mut self, rank: u32, line: &str) {
        if let Some(client) = self.by_rank.get_mut(&rank) {
            client.output.extend_from_slice(line.as_bytes());
            client.output.push(b'\n');
            // An error means that the rank has ended, which is noticed when it is reaped.
            client.flush();
        }
    }
}

impl Client {
    fn may_take(&self) -> bool {
        self.ended || self.output.len() <= OUTPUT_MAX
    }

    fn may_read(&self) -> bool {
        self.may_take() && self.input.len() <= LINE_MAX
    }

    /// Reads available bytes, up to those of a line; `false` at the end of the stream.
    fn fill(&mut self) -> bool {
        let mut part = [0; 4096];
        while self.may_read() {
            match self.stream.read(&mut part) {
                Ok(0) => return false,
                Ok(length) => self.input.extend_from_slice(&part[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Writes as much as the socket takes; `false` if the rank has closed it.
    fn flush(&mut self) -> bool {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(length) => drop(self.output.drain(..length)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn lines(&mut self) -> Vec<String> {
        let ends = self.input.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at);
        let whole = match ends.take(LINES_AT_ONCE).last() {
            Some(end) => self.input.drain(..=end).collect::<Vec<u8>>(),
            // A line that is too long is returned as it is, and the PMI server rejects it.
            None if self.input.len() > LINE_MAX => std::mem::take(&mut self.input),
            None => return Vec::new(),
        };
        String::from_utf8_lossy(&whole).lines().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Clients, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut clients = Clients::default();
        clients.add(3, ours).unwrap();
        (clients, theirs)
    }

    #[test]
    fn lines_are_joined_from_the_pieces_that_arrive() {
        let (mut clients, mut rank) = pair();
        rank.write_all(b"cmd=in").unwrap();
        assert!(clients.exchange(3).is_empty());
        rank.write_all(b"it\ncmd=get_maxes\ncmd=").unwrap();
        assert_eq!(clients.exchange(3), ["cmd=init", "cmd=get_maxes"]);
        clients.send(3, "answer");
        let mut answer = [0; 7];
        rank.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer\n");
    }

    #[test]
    fn last_line_of_a_rank_is_returned_and_its_socket_is_closed() {
        let (mut clients, mut rank) = pair();
        rank.write_all(b"cmd=abort exitcode=3\n").unwrap();
        drop(rank);
        assert_eq!(clients.exchange(3), ["cmd=abort exitcode=3"]);
        assert_eq!(clients.interests().count(), 0);
    }

    #[test]
    fn line_that_is_too_long_takes_bounded_memory() {
        let (mut clients, mut rank) = pair();
        rank.set_nonblocking(true).unwrap();
        for _ in 0..40 {
            while rank.write(&[b'x'; 8192]).is_ok() {}
            if let [line] = &clients.exchange(3)[..] {
                assert!(line.len() <= LINE_MAX + 4096);
                return;
            }
        }
        panic!("a line that is too long is never returned");
    }

    #[test]
    fn a_rank_that_floods_gets_its_turn_and_no_more() {
        let (mut clients, mut rank) = pair();
        rank.write_all("x\n".repeat(3 * LINES_AT_ONCE / 2).as_bytes()).unwrap();
        assert_eq!(clients.exchange(3).len(), LINES_AT_ONCE);
        assert_eq!(clients.waiting(), [3]);
        assert_eq!(clients.exchange(3).len(), LINES_AT_ONCE / 2);
        assert!(clients.waiting().is_empty());
        rank.write_all("y\n".repeat(LINES_AT_ONCE + 1).as_bytes()).unwrap();
        drop(rank);
        let taken: Vec<usize> = (0..3).map(|_| clients.exchange(3).len()).collect();
        assert_eq!(taken, [LINES_AT_ONCE, 1, 0]);
        assert!(clients.waiting().is_empty() && clients.interests().count() == 0);
    }

    #[test]
    fn a_rank_that_reads_no_answer_is_not_read_from() {
        let (mut clients, mut rank) = pair();
        rank.set_nonblocking(true).unwrap();
        let (mut answers, answer) = (0, "a".repeat(1000));
        for _ in 0..100_000 {
            let _ = rank.write(b"cmd=get\n");
            clients.exchange(3).iter().for_each(|_| {
                clients.send(3, &answer);
                answers += 1;
            });
            let client = &clients.by_rank[&3];
            assert!(client.output.len() <= OUTPUT_MAX + LINES_AT_ONCE * (answer.len() + 1));
        }
        assert_eq!(clients.interests().map(|(_, _, flags)| flags).collect::<Vec<_>>(), [PollFlags::POLLOUT]);
        let (mut read, mut part) = (0, [0; 4096]);
        while read < answers * (answer.len() + 1) {
            read += rank.read(&mut part).unwrap_or(0);
            clients.exchange(3).iter().for_each(|_| {
                clients.send(3, &answer);
                answers += 1;
            });
        }
        assert!(clients.by_rank[&3].output.is_empty());
    }
}
