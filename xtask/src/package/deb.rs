//! The Debian package, by `dpkg-deb`.

use super::tree::{PROGRAMS, put, write, write_as};
use super::{LIMIT, Release, TEXTS, files, remove};
use crate::command;
use crate::setup::pins;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
const CONFIGURATION: &str = "etc/coswitch/cluster.yaml";

/// Packs the tree below `/usr`; returns the package.
pub(super) fn make(root: &Path, release: &Release, tree: &Path, home: &Path) -> Result<PathBuf> {
    let (content, texts) = (home.join("deb"), root.join(TEXTS));
    for file in files(tree)? {
        let mode = fs::metadata(tree.join(&file))?.permissions();
        let to = content.join("usr").join(&file);
        put(&tree.join(&file), &to, std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777)?;
        if file.extension().is_some_and(|extension| extension == "service") {
            write(&to, &fs::read_to_string(&to)?.replace("/usr/local/", "/usr/"))?;
        }
    }
    put(&texts.join("cluster.yaml"), &content.join(CONFIGURATION), 0o644)?;
    let parts = format!("/var/lib/coswitch/parts/{}", parts_name(release, tree)?);
    symlink(&parts, content.join("usr/lib/coswitch/parts"))?;
    let control = content.join("DEBIAN");
    let template =
        fs::read_to_string(texts.join("control")).context("cannot read the template of control")?;
    for script in SCRIPTS {
        let text = fs::read_to_string(texts.join(script)).with_context(|| format!("cannot read {script}"))?;
        write_as(&control.join(script), text.replace("@PARTS@", &parts).as_bytes(), 0o755)?;
    }
    write(&control.join("conffiles"), &format!("/{CONFIGURATION}\n"))?;
    write(&control.join("md5sums"), &sums(&content)?)?;
    write(
        &control.join("control"),
        &control_file(&template, release, &dependencies(tree, home)?, size(&content)?),
    )?;
    let package = home.join(format!("coswitch_{}_{}.deb", release.version, release.architecture));
    let mut build = release.command("dpkg-deb");
    build.args(["--build", "--root-owner-group", "-Zzstd", "-z9"]).arg(&content).arg(&package);
    command::run(&mut build, LIMIT).context("cannot make the Debian package")?;
    remove(&content)?;
    Ok(package)
}

/// The directory in which the parts of this build stay for jobs that were launched with them.
pub(super) fn parts_name(release: &Release, tree: &Path) -> Result<String> {
    let sums = PROGRAMS[1..].iter().map(|(_, place, _)| pins::sha256(&tree.join(place)));
    let sums = sums.collect::<Result<Vec<String>>>()?;
    Ok(format!("{}-{}", release.version, sums.iter().map(|sum| &sum[..8]).collect::<String>()))
}

fn control_file(template: &str, release: &Release, dependencies: &str, kilobytes: u64) -> String {
    let values = [
        ("@VERSION@", release.version.as_str()),
        ("@ARCHITECTURE@", release.architecture),
        ("@KILOBYTES@", &kilobytes.to_string()),
        ("@DEPENDENCIES@", dependencies),
    ];
    values.into_iter().fold(template.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// What the programs and the driver are linked to, as `dpkg-shlibdeps` finds it.
fn dependencies(tree: &Path, home: &Path) -> Result<String> {
    let scratch = home.join("shlibdeps");
    write(&scratch.join("debian/control"), "Source: coswitch\n\nPackage: coswitch\nArchitecture: any\n")?;
    let mut shlibdeps = Command::new("dpkg-shlibdeps");
    shlibdeps.current_dir(&scratch).arg("-O").args(PROGRAMS.map(|(_, place, _)| tree.join(place)));
    // Beside its answer it warns of programs that are not installed.
    let said =
        command::run(&mut shlibdeps, LIMIT).context("cannot find out what the programs are linked to")?;
    remove(&scratch)?;
    let line = said.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(line.context("dpkg-shlibdeps names no libraries")?.to_owned())
}

/// For `dpkg --verify`.
fn sums(content: &Path) -> Result<String> {
    let of_package = files(content)?.into_iter().filter(|file| !file.starts_with("DEBIAN"));
    let regular = of_package.filter(|file| !content.join(file).is_symlink() && !file.starts_with("etc"));
    command::run(Command::new("md5sum").current_dir(content).args(regular), LIMIT)
}

fn size(content: &Path) -> Result<u64> {
    let sizes = files(content)?.into_iter().map(|file| Ok(content.join(file).symlink_metadata()?.len()));
    Ok(sizes.sum::<Result<u64>>()?.div_ceil(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_file_has_a_value_in_every_field_and_a_description_that_is_indented() {
        let template = fs::read_to_string(Path::new("package/control")).unwrap();
        let text = control_file(&template, &crate::package::tests::release(), "libc6 (>= 2.34)", 7);
        let (fields, rest) = text.split_once("Description: ").unwrap();
        for field in ["Version: 1.2.3", "Installed-Size: 7", "Depends: libc6 (>= 2.34), iproute2"] {
            assert!(fields.lines().any(|line| line == field), "{field} in\n{text}");
        }
        assert!(fields.lines().all(|line| line.contains(": ") && line.matches('@').count() <= 1), "{text}");
        assert!(rest.lines().skip(1).all(|line| line.starts_with(' ') && line.len() <= 80), "{rest}");
    }
}
