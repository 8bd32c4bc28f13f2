//! The ranks' PMI sockets: lines in, lines out, never blocking.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
};

use nix::poll::PollFlags;

/// No PMI line is near as long; a rank that sends one is not speaking PMI.
const LINE_MAX: usize = 64 << 10;

struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
}

/// All sockets that are open.
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

    /// What to poll for.
    pub(super) fn interests(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>, PollFlags)> {
        self.by_rank.iter().map(|(rank, client)| {
            let writing = if client.output.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
            (*rank, client.stream.as_fd(), PollFlags::POLLIN | writing)
        })
    }

    /// Moves bytes both ways and returns the lines that are complete. A socket that is at its end is closed.
    pub(super) fn exchange(&mut self, rank: u32) -> Vec<String> {
        let Some(client) = self.by_rank.get_mut(&rank) else { return Vec::new() };
        let open = client.fill() && client.flush();
        let lines = client.lines();
        if !open {
            self.by_rank.remove(&rank);
        }
        lines
    }

    pub(super) fn say(&mut self, rank: u32, line: &str) {
        if let Some(client) = self.by_rank.get_mut(&rank) {
            client.output.extend_from_slice(line.as_bytes());
            client.output.push(b'\n');
            // A rank that is gone is noticed when it is reaped.
            client.flush();
        }
    }
}

impl Client {
    /// Reads what there is; `false` at the end.
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

    /// Writes what there is room for; `false` where nobody reads any more.
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
            // An endless line is passed on as it is, to be refused.
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
    fn lines_are_put_together_from_whatever_pieces_arrive() {
        let (mut clients, mut rank) = pair();
        rank.write_all(b"cmd=in").unwrap();
        assert!(clients.exchange(3).is_empty());
        rank.write_all(b"it\ncmd=get_maxes\ncmd=").unwrap();
        assert_eq!(clients.exchange(3), ["cmd=init", "cmd=get_maxes"]);
        clients.say(3, "answer");
        let mut answer = [0; 7];
        rank.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer\n");
    }

    #[test]
    fn the_last_words_of_a_rank_are_heard_and_its_socket_is_closed() {
        let (mut clients, mut rank) = pair();
        rank.write_all(b"cmd=abort exitcode=3\n").unwrap();
        drop(rank);
        assert_eq!(clients.exchange(3), ["cmd=abort exitcode=3"]);
        assert_eq!(clients.interests().count(), 0);
    }

    #[test]
    fn an_endless_line_takes_bounded_memory() {
        let (mut clients, mut rank) = pair();
        rank.set_nonblocking(true).unwrap();
        for _ in 0..40 {
            while rank.write(&[b'x'; 8192]).is_ok() {}
            if let [line] = &clients.exchange(3)[..] {
                assert!(line.len() <= LINE_MAX + 4096);
                return;
            }
        }
        panic!("an endless line is never passed on");
    }
}
