//! The transport with a real CRIU, and with programs that do not behave like CRIU.

use criu_sys::rpc::{CriuFeatures, CriuOpts, CriuReq, CriuReqType};
use criu_sys::{Ended, Swrk, SwrkError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn criu() -> PathBuf {
    let prefix = std::env::var("COSWITCH_PREFIX").unwrap_or_else(|_| "/opt/coswitch".to_owned());
    let private = Path::new(&prefix).join("criu/bin/criu");
    if private.exists() { private } else { "criu".into() }
}

fn in_seconds(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

fn request(kind: CriuReqType) -> CriuReq {
    CriuReq { r#type: kind as i32, ..CriuReq::default() }
}

#[test]
fn criu_reports_its_version() {
    let mut worker = Swrk::start(&criu()).unwrap();
    let response = worker.call(&request(CriuReqType::Version), in_seconds(20), &mut |_| true).unwrap();
    let version = response.version.expect("a version");
    assert!(response.success && version.major_number >= 4, "{version:?}");
    assert_eq!(worker.end(Duration::from_secs(10)), Ended::Itself);
}

#[test]
fn criu_reports_its_features() {
    let mut worker = Swrk::start(&criu()).unwrap();
    let features = CriuFeatures { mem_track: Some(true), lazy_pages: Some(true), pidfd_store: Some(true) };
    let request = CriuReq { features: Some(features), ..request(CriuReqType::FeatureCheck) };
    let response = worker.call(&request, in_seconds(240), &mut |_| true).unwrap();
    assert_eq!(response.features.expect("features").pidfd_store, Some(true));
    assert_eq!(worker.end(Duration::from_secs(10)), Ended::Itself);
}

#[test]
fn a_refused_request_gets_a_response_without_success() {
    let mut worker = Swrk::start(&criu()).unwrap();
    let opts =
        CriuOpts { images_dir_fd: -1, images_dir: Some("/nonexistent".to_owned()), ..CriuOpts::default() };
    let request = CriuReq { opts: Some(opts), ..request(CriuReqType::Restore) };
    let response = worker.call(&request, in_seconds(60), &mut |_| true).unwrap();
    assert!(!response.success);
    assert_eq!(worker.end(Duration::from_secs(10)), Ended::Itself);
}

#[test]
fn the_error_about_a_program_that_ends_at_once_has_its_standard_error() {
    let mut worker = Swrk::start(Path::new("/bin/ls")).unwrap();
    // It may end before or after our request is sent: the error must be the same.
    let error = worker.call(&request(CriuReqType::Version), in_seconds(20), &mut |_| true).unwrap_err();
    assert!(matches!(&error, SwrkError::Closed { stderr } if stderr.contains("swrk")), "{error}");
}

#[test]
fn a_silent_worker_times_out_and_is_terminated() {
    // Whatever its arguments, yes(1) writes only to its standard output and never looks at its input.
    let mut worker = Swrk::start(Path::new("/usr/bin/yes")).unwrap();
    let begun = Instant::now();
    let error =
        worker.call(&request(CriuReqType::Version), begun + Duration::from_millis(200), &mut |_| true);
    assert!(matches!(error, Err(SwrkError::TimedOut)), "{error:?}");
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert_eq!(worker.abort(Duration::from_millis(100)), (Ended::Terminated, None));
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_worker_that_ignores_sigterm_is_killed_last() {
    let worker = Swrk::start(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/stubborn"))).unwrap();
    // Time for the shell to set its trap.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(worker.abort(Duration::from_millis(100)), (Ended::Killed, None));
}
