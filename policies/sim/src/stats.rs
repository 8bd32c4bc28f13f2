//! Means over seeds with their confidence intervals (Student's t).

use serde::{Deserialize, Serialize};

/// A mean and its confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampleMean {
    pub mean: f64,
    /// The true mean lies within this distance with a probability of 95 %; none with fewer than two samples.
    pub half_width: Option<f64>,
}

impl SampleMean {
    /// The mean of independent samples and its 95 % interval: t(n − 1) · s ÷ √n.
    #[must_use]
    pub fn of(samples: &[f64]) -> Self {
        let n = samples.len() as f64;
        if samples.is_empty() {
            return Self::default();
        }
        let mean = samples.iter().sum::<f64>() / n;
        if samples.len() < 2 {
            return Self { mean, half_width: None };
        }
        let variance = samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
        Self { mean, half_width: Some(t_95(samples.len() - 1) * (variance / n).sqrt()) }
    }
}

/// The two-sided 95 % point of Student's t with `freedom` degrees of freedom: the usual table up to 30;
/// beyond that the expansion of Cornish and Fisher around the normal's 1.959964, which is right to 4 digits
/// there.
#[must_use]
pub fn t_95(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788,
        2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639,
        2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
    ];
    if let Some(value) = freedom.checked_sub(1).and_then(|index| TABLE.get(index)) {
        return *value;
    }
    if freedom == 0 {
        return f64::INFINITY;
    }
    let (z, n) = (1.959_963_985_f64, freedom as f64);
    z + (z.powi(3) + z) / (4.0 * n) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    #[test]
    fn the_points_of_student_are_those_of_the_tables() {
        for (freedom, wanted) in
            [(1, 12.7062), (10, 2.2281), (30, 2.0423), (40, 2.0211), (60, 2.0003), (120, 1.9799)]
        {
            assert!((t_95(freedom) - wanted).abs() < 2e-4, "{} for {freedom}", t_95(freedom));
        }
    }

    #[test]
    fn the_interval_holds_the_mean_as_often_as_it_says() {
        let mut seed = Seed::new(4);
        let holds = |seed: &mut Seed| {
            let samples: Vec<f64> = (0..6).map(|_| 3.0 + seed.normal()).collect();
            let estimate = SampleMean::of(&samples);
            (estimate.mean - 3.0).abs() <= estimate.half_width.unwrap()
        };
        let held = (0..10_000).filter(|_| holds(&mut seed)).count();
        assert!((9420..9580).contains(&held), "{held} of 10000");
    }

    #[test]
    fn one_sample_says_nothing_of_its_spread() {
        assert_eq!(SampleMean::of(&[2.0]), SampleMean { mean: 2.0, half_width: None });
        assert_eq!(SampleMean::of(&[1.0, 1.0, 1.0]).half_width, Some(0.0));
    }
}
