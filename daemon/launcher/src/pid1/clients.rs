//! The PMI sockets of the ranks: non-blocking input and output of lines.

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

struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
}

/// All open sockets.
#[derive(Default)]
pub(super) struct Clients {
    by_rank: BTreeMap<u32, Client>,
}

impl Clients {
    pub(super) fn add(&mut self, rank: u32, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        self.by_rank.insert(rank, Client { stream, input: Vec::new(), output: Vec::new() });
        Ok(())
    }

    /// Sockets to poll, and the conditions to poll for.
    pub(super) fn interests(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>, PollFlags)> {
        self.by_rank.iter().map(|(rank, client)| {
            let writing = if client.output.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
            (*rank, client.stream.as_fd(), PollFlags::POLLIN | writing)
        })
    }

    /// Reads and writes, and returns the complete lines. Closes a socket that is at its end.
    pub(super) fn exchange(&mut self, rank: u32) -> Vec<String> {
        let Some(client) = self.by_rank.get_mut(&rank) else { return Vec::new() };
        let open = client.fill() && client.flush();
        let lines = client.lines();
        if !open {
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
    /// Reads all available bytes; `false` at the end of the stream.
    fn fill(&mut self) -> bool {
        let mut part = [0; 4096];
        while self.input.len() <= LINE_MAX {
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
        let whole = match self.input.iter().rposition(|byte| *byte == b'\n') {
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
}
