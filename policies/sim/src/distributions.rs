//! Random distributions drawn from a [`Seed`]. Logarithms and powers come from the `libm` crate and not from
//! the platform, so that a seed gives the same workload everywhere.

use crate::Seed;

impl Seed {
    /// Uniform over `0 < u < 1`: 53 bits, never 0 or 1, so that its logarithm is always finite.
    pub const fn unit(&mut self) -> f64 {
        let bits = self.next_u64() >> 11;
        (bits as f64 + 0.5) / (1_u64 << 53) as f64
    }

    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(self.unit())
    }

    /// Normal with mean 0 and deviation 1 (Marsaglia's polar method; the second value is dropped).
    pub fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square < 1.0 && square > 0.0 {
                return x * libm::sqrt(-2.0 * libm::log(square) / square);
            }
        }
    }

    /// Gamma with this shape and scale: mean `shape · scale`, variance `shape · scale²` (Marsaglia and Tsang
    /// 2000).
    pub fn gamma(&mut self, shape: f64, scale: f64) -> f64 {
        if shape < 1.0 {
            let raised = self.gamma(shape + 1.0, scale);
            return raised * libm::pow(self.unit(), 1.0 / shape);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / libm::sqrt(9.0 * d);
        loop {
            let x = self.normal();
            let v = (1.0 + c * x) * (1.0 + c * x) * (1.0 + c * x);
            if v > 0.0 && libm::log(self.unit()) < 0.5 * x * x + d - d * v + d * libm::log(v) {
                return d * v * scale;
            }
        }
    }
}

/// The probability that a gamma variable of this shape and scale is at most `x` (series below the mean,
/// continued fraction above it; relative error below 1e-12).
#[must_use]
pub fn gamma_cdf(x: f64, shape: f64, scale: f64) -> f64 {
    let x = x / scale;
    if x <= 0.0 {
        return 0.0;
    }
    let front = libm::exp(shape * libm::log(x) - x - libm::lgamma(shape));
    if x < shape + 1.0 { front * series(x, shape) } else { 1.0 - front * fraction(x, shape) }
}

fn series(x: f64, shape: f64) -> f64 {
    let (mut term, mut sum, mut a) = (1.0 / shape, 1.0 / shape, shape);
    while term > sum * 1e-14 {
        a += 1.0;
        term *= x / a;
        sum += term;
    }
    sum
}

/// Continued fraction by Lentz's method.
fn fraction(x: f64, shape: f64) -> f64 {
    let tiny = 1e-300;
    let mut b = x + 1.0 - shape;
    let (mut c, mut d) = (1.0 / tiny, 1.0 / b);
    let mut h = d;
    for i in 1..10_000 {
        let i = f64::from(i);
        let a = -i * (i - shape);
        b += 2.0;
        let denominator = a * d + b;
        d = 1.0 / if denominator.abs() < tiny { tiny } else { denominator };
        c = b + a / c;
        c = if c.abs() < tiny { tiny } else { c };
        h *= d * c;
        if (d * c - 1.0).abs() < 1e-14 {
            break;
        }
    }
    h
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and variance of many draws.
    fn moments(mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let n = 200_000;
        let all: Vec<f64> = (0..n).map(|_| draw()).collect();
        let mean = all.iter().sum::<f64>() / f64::from(n);
        (mean, all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(n))
    }

    fn near(found: f64, wanted: f64, part: f64) {
        assert!((found - wanted).abs() <= part * wanted.abs(), "{found} is not within {part} of {wanted}");
    }

    #[test]
    fn draws_have_the_moments_of_their_distribution() {
        let mut seed = Seed::new(1);
        let (mean, variance) = moments(|| seed.exponential(7.0));
        near(mean, 7.0, 0.01);
        near(variance, 49.0, 0.03);
        for (shape, scale) in [(0.4, 3.0), (1.0, 2.0), (6.57, 0.823), (639.1, 0.0156)] {
            let (mean, variance) = moments(|| seed.gamma(shape, scale));
            near(mean, shape * scale, 0.01);
            near(variance, shape * scale * scale, 0.03);
        }
        let (mean, variance) = moments(|| seed.normal());
        assert!(mean.abs() < 0.01);
        near(variance, 1.0, 0.02);
    }

    #[test]
    fn the_distribution_function_of_gamma_is_that_of_the_tables() {
        // Shape 1 is exponential; chi-square with 10 degrees of freedom is shape 5, scale 2: 18.307 is its 95
        // % point.
        near(gamma_cdf(2.0, 1.0, 1.0), 1.0 - (-2.0_f64).exp(), 1e-12);
        near(gamma_cdf(0.5, 1.0, 1.0), 1.0 - (-0.5_f64).exp(), 1e-12);
        near(gamma_cdf(18.307_038, 5.0, 2.0), 0.95, 1e-8);
        assert!(gamma_cdf(0.0, 3.0, 1.0).abs() < f64::EPSILON);
    }
}
