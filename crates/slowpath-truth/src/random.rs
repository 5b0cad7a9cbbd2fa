// SPDX-License-Identifier: Apache-2.0
//! Draws from a seed.

use slowpath_switch::Random;

/// Random numbers of one run, the same for the same seed, group and number.
#[derive(Clone, Debug)]
pub struct RandomStream(Random);

impl RandomStream {
    /// The stream of a run.
    pub fn new(seed: u64, group: &str, number: u32) -> Self {
        // FNV-1a (RFC draft-eastlake-fnv): names to streams.
        let hash = group.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        RandomStream(Random::stream(seed ^ hash, number.into()))
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        // 53 bits are what a double holds.
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform between two numbers.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Between two numbers, each factor as likely as another.
    pub fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        (low.ln() + (high.ln() - low.ln()) * self.unit()).exp()
    }

    /// An integer between two, both included.
    pub fn integer(&mut self, low: u32, high: u32) -> u32 {
        low + self.0.below(high.saturating_sub(low).saturating_add(1))
    }

    /// One of some.
    ///
    /// # Panics
    /// There is none.
    pub fn pick<T: Copy>(&mut self, some: &[T]) -> T {
        some[self.0.below(some.len() as u32) as usize]
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::RandomStream;

    #[test]
    fn draws_depend_only_on_seed_group_and_number() {
        let draw = |seed, group: &str, number| RandomStream::new(seed, group, number).unit();
        assert_eq!(draw(1, "a", 2), draw(1, "a", 2));
        let all = [
            draw(1, "a", 2),
            draw(2, "a", 2),
            draw(1, "b", 2),
            draw(1, "a", 3),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|other| other != one));
        }
    }

    #[test]
    fn draws_stay_within_their_bounds() {
        let mut random = RandomStream::new(7, "bounds", 0);
        for _ in 0..1000 {
            assert!((0.1..200.0).contains(&random.log_uniform(0.1, 200.0)));
            assert!((3..=5).contains(&random.integer(3, 5)));
        }
    }
}
