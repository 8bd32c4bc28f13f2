//! Whose a job is, where it is not root's.

use std::{
    collections::BTreeMap,
    ffi::CString,
    path::{Path, PathBuf},
};

use coswitch_dispatcher::protocol::JobUser;
use nix::unistd::{Uid, User, getgrouplist};
use serde::{Deserialize, Serialize};

/// What root's environment may give to a job of another user, by names and beginnings of names: how it finds
/// programs, speaks and computes.
const KEPT: [&str; 9] =
    ["PATH", "LD_LIBRARY_PATH", "MANPATH", "LANG", "LANGUAGE", "TZ", "TERM", "COLUMNS", "LINES"];
const KEPT_BEGINNINGS: [&str; 13] = [
    "LC_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "OPENBLAS_",
    "MKL_",
    "BLIS_",
    "MPIR_",
    "MPICH_",
    "FI_",
    "UCX_",
    "HDF5_",
    "PYTHON",
];

/// An ordinary user, as the head node knows them when the job comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub name: String,
    #[serde(flatten)]
    pub ids: JobUser,
    pub home: PathBuf,
    pub shell: PathBuf,
}

impl Owner {
    /// The user of this name or number; `None` for root.
    ///
    /// # Errors
    /// With what is wrong, where there is none.
    pub fn named(word: &str) -> Result<Option<Self>, String> {
        let found = match word.parse() {
            Ok(number) => User::from_uid(Uid::from_raw(number)),
            Err(_) => User::from_name(word),
        };
        let user = found.map_err(|error| format!("`{word}` cannot be looked up: {error}"))?;
        let user = user.ok_or_else(|| format!("this machine has no user `{word}`"))?;
        if user.uid.is_root() {
            return Ok(None);
        }
        let name = CString::new(user.name.clone()).map_err(|error| error.to_string())?;
        let groups = getgrouplist(&name, user.gid)
            .map_err(|error| format!("the groups of `{word}` cannot be looked up: {error}"))?;
        let groups = groups.into_iter().map(|group| group.as_raw()).collect();
        let ids = JobUser { uid: user.uid.as_raw(), gid: user.gid.as_raw(), groups };
        Ok(Some(Self { name: user.name, ids, home: user.dir, shell: user.shell }))
    }

    /// What a job of this user has of root's environment.
    #[must_use]
    pub fn environment(&self, of_root: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let is_kept = |name: &String| {
            KEPT.contains(&name.as_str()) || KEPT_BEGINNINGS.iter().any(|start| name.starts_with(start))
        };
        let mut kept: BTreeMap<_, _> = of_root.into_iter().filter(|(name, _)| is_kept(name)).collect();
        let path = |path: &Path| path.display().to_string();
        for (name, value) in [
            ("USER", self.name.clone()),
            ("LOGNAME", self.name.clone()),
            ("HOME", path(&self.home)),
            ("SHELL", path(&self.shell)),
        ] {
            kept.insert(name.into(), value);
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_and_number_and_root_is_none() {
        let nobody = Owner::named("nobody").unwrap().expect("an ordinary one");
        assert_eq!((nobody.name.as_str(), nobody.ids.uid), ("nobody", 65534));
        assert!(nobody.ids.groups.contains(&nobody.ids.gid));
        assert_eq!(Owner::named("65534").unwrap(), Some(nobody));
        assert_eq!((Owner::named("root"), Owner::named("0")), (Ok(None), Ok(None)));
        assert_eq!(Owner::named("no-such-user"), Err("this machine has no user `no-such-user`".into()));
    }

    #[test]
    fn what_root_has_in_its_environment_is_not_given_away() {
        let roots =
            ["PATH", "LC_ALL", "OMP_NUM_THREADS", "HOME", "SECRET_TOKEN", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR"];
        let roots = roots.map(|name| (name.to_owned(), "root's".to_owned())).into();
        let given = Owner::named("nobody").unwrap().unwrap().environment(roots);
        let names: Vec<&str> = given.keys().map(String::as_str).collect();
        assert_eq!(names, ["HOME", "LC_ALL", "LOGNAME", "OMP_NUM_THREADS", "PATH", "SHELL", "USER"]);
        assert_ne!(given["HOME"], "root's");
    }
}
