//! The generated jobs have the moments that the published parameters imply.

use super::*;

fn log_of(interactive: bool) -> Log {
    generate(11, &Settings { jobs: 60_000, interactive, ..Settings::default() })
}

fn of_queue(log: &Log, queue: u32) -> Vec<&Record> {
    log.records.iter().filter(|record| record.queue == Some(queue)).collect()
}

fn near(found: f64, wanted: f64, part: f64) {
    assert!((found - wanted).abs() <= part * wanted.abs(), "{found} is not within {part} of {wanted}");
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0.0), |(sum, n), value| (sum + value, n + 1.0));
    sum / n
}

fn share(records: &[&Record], is: impl Fn(u32) -> bool) -> f64 {
    mean(records.iter().map(|record| f64::from(u8::from(is(record.processors.unwrap())))))
}

#[test]
fn sizes_are_serial_or_powers_of_two_as_often_as_published() {
    for (log, queue, kind) in [(log_of(false), 1, BATCH), (log_of(true), 0, INTERACTIVE)] {
        let jobs = of_queue(&log, queue);
        near(share(&jobs, |n| n == 1), kind.serial, 0.02);
        let rest = 1.0 - kind.serial - kind.power_of_two;
        let wanted = kind.serial + kind.power_of_two + rest * by_chance(&kind);
        near(share(&jobs, u32::is_power_of_two), wanted, 0.01);
        // The mean of the logarithm of parallel sizes, by the authors' formula; rounding does not move it.
        let [low, medium, high] = kind.sizes;
        let wanted = f64::midpoint(kind.lower * low + medium, (1.0 - kind.lower) * high);
        let parallel = jobs.iter().filter_map(|job| job.processors.filter(|n| *n > 1));
        near(mean(parallel.map(|n| f64::from(n).log2())), wanted, 0.03);
        assert!(jobs.iter().all(|job| job.processors.unwrap() <= 128));
    }
}

/// The share of sizes that are powers of two although they were not rounded to one.
fn by_chance(kind: &Kind) -> f64 {
    let [low, medium, high] = kind.sizes;
    let uniform = |x: f64, from: f64, to: f64| ((x - from) / (to - from)).clamp(0.0, 1.0);
    let below = |x: f64| kind.lower * uniform(x, low, medium) + (1.0 - kind.lower) * uniform(x, medium, high);
    (1..=7).map(|k| 2_f64.powi(k)).map(|n| below((n + 0.5).log2()) - below((n - 0.5).log2())).sum()
}

#[test]
fn run_times_have_the_mean_of_the_two_gammas() {
    let log = log_of(false);
    for size in [1, 32] {
        let jobs: Vec<_> =
            log.records.iter().filter(|job| job.processors == Some(size) && job.run.unwrap() > 0).collect();
        let p = BATCH.first.0 * f64::from(size) + BATCH.first.1;
        let [(a1, b1), (a2, b2)] = BATCH.run;
        let wanted = p * a1 * b1 + (1.0 - p) * a2 * b2;
        near(mean(jobs.iter().map(|job| (job.run.unwrap() as f64 + 0.5).ln())), wanted, 0.02);
    }
    assert!(log.records.iter().all(|job| job.run.unwrap() <= 162_754), "e^12 seconds");
}

#[test]
fn larger_jobs_run_longer() {
    let log = log_of(false);
    let long = |small: bool| {
        let jobs: Vec<_> = log.records.iter().filter(|job| (job.processors.unwrap() <= 4) == small).collect();
        mean(jobs.iter().map(|job| f64::from(u8::from(job.run.unwrap() > 3600))))
    };
    assert!(long(false) > long(true), "{} and {}", long(false), long(true));
}

#[test]
fn jobs_arrive_by_day_as_the_cycle_says() {
    let log = log_of(false);
    assert!(log.records.is_sorted_by_key(|job| job.submit));
    let mut counts = [0.0; BUCKETS];
    for job in &log.records {
        counts[usize::try_from(job.submit % 86_400 / 1800).unwrap()] += 1.0;
    }
    let wanted = weights(BATCH.cycle);
    let per_bucket = log.records.len() as f64 / BUCKETS as f64;
    let (mut both, mut ours, mut theirs) = (0.0, 0.0, 0.0);
    for (count, weight) in counts.iter().map(|count| count / per_bucket - 1.0).zip(wanted.map(|w| w - 1.0)) {
        (both, ours, theirs) = (both + count * weight, ours + count * count, theirs + weight * weight);
    }
    let correlation = both / f64::sqrt(ours * theirs);
    assert!(correlation > 0.99, "{correlation}");
    // Without an upper end the mean interval would be (1 - scale)^-shape, by the moment generating function
    // of the gamma.
    let (shape, scale) = BATCH.interval;
    let interval = log.records.last().unwrap().submit as f64 / log.records.len() as f64;
    assert!(interval < (1.0 - scale).powf(-shape) && interval > 500.0, "{interval}");
}

#[test]
fn the_same_seed_gives_the_same_log_and_twice_the_load_half_the_time() {
    let shape = Settings { jobs: 2000, ..Settings::default() };
    assert_eq!(generate(5, &shape), generate(5, &shape));
    assert_ne!(generate(5, &shape), generate(6, &shape));
    let last = |load| generate(5, &Settings { load, ..shape }).records.last().unwrap().submit;
    assert!(last(2.0) < last(1.0) * 3 / 4, "{} and {}", last(2.0), last(1.0));
}
