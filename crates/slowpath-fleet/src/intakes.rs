// SPDX-License-Identifier: Apache-2.0
//! Sets of intake files' numbers, as a file's metadata states whose rows it has.

use std::fmt;
use std::str::FromStr;

/// Numbers, as ranges that neither touch nor overlap, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Intakes(Vec<(u64, u64)>);

impl Intakes {
    pub(crate) fn contains(&self, number: u64) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < number);
        self.0.get(at).is_some_and(|(first, _)| *first <= number)
    }

    pub(crate) fn insert(&mut self, number: u64) {
        let at = self.0.partition_point(|(_, last)| *last < number);
        if self.contains(number) {
            return;
        }
        self.0.insert(at, (number, number));
        if let Some((first, _)) = self.0.get(at + 1).copied()
            && first == number + 1
        {
            self.0[at].1 = self.0.remove(at + 1).1;
        }
        if at > 0 && self.0[at - 1].1 + 1 == number {
            self.0[at - 1].1 = self.0.remove(at).1;
        }
    }
}

impl fmt::Display for Intakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (first, last)) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// The text is none that states such a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoIntakes;

impl FromStr for Intakes {
    type Err = NoIntakes;

    fn from_str(text: &str) -> Result<Self, NoIntakes> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for range in text.split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.parse().map_err(|_| NoIntakes);
            let (first, last) = (number(first)?, number(last)?);
            let ascends = ranges.last().is_none_or(|(_, before)| *before < first);
            if !ascends || first > last {
                return Err(NoIntakes);
            }
            ranges.push((first, last));
        }
        Ok(Intakes(ranges))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn sets_have_what_was_put_into_them(numbers in proptest::collection::vec(0u64..40, 0..60)) {
            let mut set = Intakes::default();
            let mut expected = BTreeSet::new();
            for number in numbers {
                set.insert(number);
                expected.insert(number);
                for number in 0..41 {
                    prop_assert_eq!(set.contains(number), expected.contains(&number));
                }
                prop_assert_eq!(set.to_string().parse(), Ok(set.clone()));
            }
        }
    }

    #[test]
    fn ranges_are_joined() {
        let mut set = Intakes::default();
        [3, 5, 4, 9, 1]
            .into_iter()
            .for_each(|number| set.insert(number));
        assert_eq!(set.to_string(), "1,3-5,9");
        assert_eq!("3-5,5".parse::<Intakes>(), Err(NoIntakes));
        assert_eq!("x".parse::<Intakes>(), Err(NoIntakes));
        assert_eq!("".parse(), Ok(Intakes::default()));
    }
}
