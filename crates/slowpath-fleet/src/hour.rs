// SPDX-License-Identifier: Apache-2.0
//! To which hour of the server's clock a row belongs.

use slowpath_model::{Micros, WallMicros};
use slowpath_ship::batch::ClockOffset;
use std::path::{Path, PathBuf};

const HOUR: i64 = 3_600_000_000;
/// Rows older than this when they are received lie in the hour of their receipt.
const OLDEST: Micros = Micros(25 * HOUR as u64);
/// A clock that was not measured may be so far ahead; one that was, by its error more.
const AHEAD: Micros = Micros(2_000_000);

/// An hour, UTC, by its number since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hour(pub i64);

impl Hour {
    /// The hour of a moment.
    pub fn of(time: WallMicros) -> Hour {
        Hour(time.0.div_euclid(HOUR))
    }

    /// When it begins.
    pub fn begins(self) -> WallMicros {
        WallMicros(self.0.saturating_mul(HOUR))
    }

    /// When it ends.
    pub fn ends(self) -> WallMicros {
        Hour(self.0.saturating_add(1)).begins()
    }

    /// Its directory below that of the tables: `date=2026-11-21/hour=09`.
    pub(crate) fn dir(self, tables: &Path) -> PathBuf {
        let time = jiff::Timestamp::from_microsecond(self.begins().0)
            .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
            .to_zoned(jiff::tz::TimeZone::UTC);
        let date = time.strftime("date=%Y-%m-%d").to_string();
        tables.join(date).join(time.strftime("hour=%H").to_string())
    }

    /// The hour of a directory that [`Hour::dir`] gives.
    pub(crate) fn of_dir(dir: &Path) -> Option<Hour> {
        let part = |path: &Path, prefix: &str| {
            let name = path.file_name()?.to_str()?;
            Some(name.strip_prefix(prefix)?.to_owned())
        };
        let hour: i64 = part(dir, "hour=")?.parse().ok()?;
        let date = part(dir.parent()?, "date=")?;
        let date: jiff::civil::Date = date.parse().ok()?;
        let begins = date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
        let of_day = Hour::of(WallMicros(begins.as_microsecond()));
        (0..24).contains(&hour).then_some(Hour(of_day.0 + hour))
    }
}

/// Where a row belongs that ended then by its host's clock, and whether that clock is suspect.
///
/// 1. The end by the server's clock is that of the host, corrected by the measured offset.
/// 2. One later than the receipt, by more than the clock's error, or earlier than 25 h before it: the
///    hour of the receipt, and the clock is suspect.
/// 3. Else the hour of that end, never one later than that of the receipt.
pub fn assign_hour(
    end: WallMicros,
    clock: Option<ClockOffset>,
    received: WallMicros,
) -> (Hour, bool) {
    let (offset, error) = clock.map_or((0, 0), |clock| (clock.offset_us, clock.error_us));
    let corrected = WallMicros(end.0.saturating_add(offset));
    let latest = received + AHEAD + Micros(error.into());
    if corrected > latest || corrected < received - OLDEST {
        return (Hour::of(received), true);
    }
    (Hour::of(corrected).min(Hour::of(received)), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-21T09:00:00Z.
    const NINE: i64 = 1_795_251_600_000_000;
    const SECOND: i64 = 1_000_000;

    fn of(end: i64, offset_us: Option<i64>, received: i64) -> (i64, bool) {
        let clock = offset_us.map(|offset_us| ClockOffset {
            offset_us,
            error_us: 1_000,
        });
        let (hour, suspect) = assign_hour(WallMicros(end), clock, WallMicros(received));
        (hour.0 - Hour::of(WallMicros(NINE)).0, suspect)
    }

    #[test]
    fn a_row_lies_in_the_hour_of_its_end_by_the_servers_clock() {
        assert_eq!(of(NINE - 1, None, NINE + 5 * SECOND), (-1, false));
        assert_eq!(of(NINE, None, NINE + 5 * SECOND), (0, false));
        // A host whose clock is an hour ahead, measured.
        let ahead = NINE + HOUR;
        assert_eq!(of(ahead, Some(-HOUR), NINE + SECOND), (0, false));
        assert_eq!(of(ahead - SECOND, Some(-HOUR), NINE + SECOND), (-1, false));
        // 20 h late.
        assert_eq!(of(NINE, Some(0), NINE + 20 * HOUR), (0, false));
    }

    #[test]
    fn no_row_lies_in_an_hour_later_than_its_receipt() {
        assert_eq!(of(NINE + SECOND, None, NINE - 1), (-1, false));
        assert_eq!(of(NINE + HOUR, None, NINE), (0, true));
        assert_eq!(of(i64::MAX, None, NINE), (0, true));
        assert_eq!(of(i64::MIN, None, NINE), (0, true));
        assert_eq!(of(NINE - 26 * HOUR, None, NINE), (0, true));
    }

    #[test]
    fn directories_name_their_hour() {
        let tables = Path::new("t");
        let dir = Hour::of(WallMicros(NINE)).dir(tables);
        assert_eq!(dir, Path::new("t/date=2026-11-21/hour=09"));
        assert_eq!(Hour::of_dir(&dir), Some(Hour::of(WallMicros(NINE))));
        assert_eq!(Hour::of_dir(Path::new("t/date=2026-11-21/hour=24")), None);
        assert_eq!(Hour::of_dir(Path::new("t/date=2026/hour=01")), None);
    }
}
