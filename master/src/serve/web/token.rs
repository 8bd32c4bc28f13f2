//! The token of the live page: random, kept for root alone in the directory of the cluster, the same for a
//! master that takes over.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use coswitch_ckpt::private;
use ring::rand::{SecureRandom, SystemRandom};

/// The token, and nothing else: for programs.
const TOKEN: &str = "http-token";
/// The address of the page with the token in it: for users.
const URL: &str = "http-url";
const BYTES: usize = 32;

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token(String);

impl Token {
    /// # Errors
    /// Where the kernel has no randomness.
    pub(super) fn random() -> io::Result<Self> {
        let mut bytes = [0; BYTES];
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.map_err(|_| io::Error::other("the kernel gives no random numbers"))?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

/// The files of the token. They are removed when this is dropped, and stay behind a master that is killed.
pub(super) struct TokenFiles {
    directory: PathBuf,
    pub(super) token: Token,
}

impl TokenFiles {
    /// Takes the token of the master before, or makes one.
    ///
    /// # Errors
    /// Where the files cannot be written.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let path = directory.join(TOKEN);
        let token = match read(&path) {
            Some(token) => token,
            None => {
                let token = Token::random()?;
                write(&path, token.text())?;
                token
            }
        };
        Ok(Self { directory: directory.into(), token })
    }

    /// # Errors
    /// Where the file cannot be written.
    pub(super) fn note_url(&self, url: &str) -> io::Result<PathBuf> {
        let path = self.directory.join(URL);
        write(&path, url)?;
        Ok(path)
    }
}

impl Drop for TokenFiles {
    fn drop(&mut self) {
        for name in [TOKEN, URL] {
            if let Err(error) = remove(&self.directory.join(name)) {
                tracing::warn!(%error, name, "a file of the live page stays behind");
            }
        }
    }
}

/// A token that nobody else could read or write.
fn read(path: &Path) -> Option<Token> {
    let found = fs::symlink_metadata(path).ok()?;
    let is_private = found.is_file() && found.permissions().mode() & 0o077 == 0 && found.nlink() == 1;
    let text = (is_private && private::is_own(path)).then(|| private::read(path).ok())??;
    let text = String::from_utf8(text).ok()?;
    let text = text.trim_end();
    let is_whole = text.len() == 2 * BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_whole.then(|| Token(text.into()))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    remove(path)?;
    private::write(path, format!("{text}\n").as_bytes())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_master_has_the_same_token_unless_others_could_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let first = TokenFiles::open(directory.path()).unwrap();
        let path = directory.path().join(TOKEN);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let token = first.token.clone();
        // As after `kill -9`.
        std::mem::forget(first);
        let second = TokenFiles::open(directory.path()).unwrap();
        assert!(second.token == token && token.text().len() == 64);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        std::mem::forget(second);
        let third = TokenFiles::open(directory.path()).unwrap();
        assert!(third.token != token);
        let url = third.note_url("http://x").unwrap();
        assert_eq!(fs::read_to_string(&url).unwrap(), "http://x\n");
        drop(third);
        assert!(!path.exists() && !url.exists());
    }
}
