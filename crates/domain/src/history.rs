//! The headings of a conversation list: which one a conversation stands under for a reader in some
//! time zone. In: two instants and the zone. Out: `today`, …, or a month such as `2026-05`.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

/// The zones built into the program, so that every machine gives the same answer.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The zone of an IANA name such as `Europe/Berlin`; nothing else is taken for a zone.
pub fn time_zone(name: &str) -> Option<TimeZone> {
    ZONES.get(name).ok().filter(|zone| !zone.is_unknown())
}

/// The group by the reader's own calendar dates, not by hours. What lies in the future is of today.
pub fn group(updated_at: Timestamp, now: Timestamp, tz: &TimeZone) -> String {
    let date = tz.to_datetime(updated_at).date();
    let today = tz.to_datetime(now).date();
    let days = date.duration_until(today).as_hours() / 24;
    match days {
        ..=0 => "today".to_owned(),
        1 => "yesterday".to_owned(),
        2..=7 => "previous_7_days".to_owned(),
        8..=30 => "previous_30_days".to_owned(),
        _ => format!("{:04}-{:02}", date.year(), date.month()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn groups_follow_the_readers_dates() {
        for (updated_at, now, zone, expected) in [
            ("2026-05-14T09:12:36Z", "2026-05-14T09:12:36Z", "UTC", "today"),
            ("2026-05-15T00:00:00Z", "2026-05-14T09:12:36Z", "UTC", "today"),
            ("2026-05-14T00:00:00Z", "2026-05-14T23:59:59.999Z", "UTC", "today"),
            ("2026-05-13T23:59:59.999Z", "2026-05-14T00:00:00Z", "UTC", "yesterday"),
            ("2026-05-13T00:00:00Z", "2026-05-14T23:59:59Z", "UTC", "yesterday"),
            ("2026-05-12T23:59:59Z", "2026-05-14T00:00:00Z", "UTC", "previous_7_days"),
            ("2026-05-07T00:00:00Z", "2026-05-14T23:59:59Z", "UTC", "previous_7_days"),
            ("2026-05-06T23:59:59Z", "2026-05-14T00:00:00Z", "UTC", "previous_30_days"),
            ("2026-04-14T00:00:00Z", "2026-05-14T23:59:59Z", "UTC", "previous_30_days"),
            ("2026-04-13T23:59:59Z", "2026-05-14T00:00:00Z", "UTC", "2026-04"),
            ("2025-12-31T23:59:59Z", "2026-05-14T00:00:00Z", "UTC", "2025-12"),
            // The same two instants, seen from either side of the date line.
            ("2026-05-13T11:00:00Z", "2026-05-14T09:30:00Z", "Pacific/Kiritimati", "today"),
            ("2026-05-13T11:00:00Z", "2026-05-14T09:30:00Z", "Pacific/Pago_Pago", "today"),
            ("2026-05-13T11:00:00Z", "2026-05-14T12:00:00Z", "Pacific/Pago_Pago", "yesterday"),
            ("2026-05-13T09:59:00Z", "2026-05-13T10:00:00Z", "Pacific/Kiritimati", "yesterday"),
            ("2026-01-01T04:59:00Z", "2026-05-14T00:00:00Z", "America/New_York", "2025-12"),
            // A day of 23 hours and one of 25.
            ("2026-03-28T23:30:00Z", "2026-03-29T22:30:00Z", "Europe/Berlin", "yesterday"),
            ("2026-03-29T21:59:00Z", "2026-03-29T22:00:00Z", "Europe/Berlin", "yesterday"),
            ("2026-10-24T22:00:00Z", "2026-10-25T22:59:00Z", "Europe/Berlin", "today"),
            ("2026-10-24T21:59:00Z", "2026-10-25T22:59:00Z", "Europe/Berlin", "yesterday"),
            // Samoa had no 30 December 2011.
            ("2011-12-30T09:59:00Z", "2011-12-30T10:00:00Z", "Pacific/Apia", "previous_7_days"),
        ] {
            let tz = time_zone(zone).expect(zone);
            let group = group(updated_at.parse().unwrap(), now.parse().unwrap(), &tz);
            assert_eq!(group, expected, "{updated_at} at {now} in {zone}");
        }
    }

    #[test]
    fn only_names_of_zones_are_zones() {
        for name in ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/Argentina/Buenos_Aires", "Etc/GMT+5"] {
            assert!(time_zone(name).is_some(), "{name}");
        }
        for name in [
            "",
            " ",
            "Europe",
            "Europe/",
            "Mars/Olympus",
            "Etc/Unknown",
            "local",
            "localtime",
            ":UTC",
            "EST5EDT,M3.2.0,M11.1.0",
            "CET-1CEST",
            "<+03>-3",
            "+02:00",
            "../UTC",
            "/usr/share/zoneinfo/UTC",
            "Europe/Berlin\0",
            "posix/UTC",
        ] {
            assert!(time_zone(name).is_none(), "{name:?}");
        }
    }

    fn order(group: &str) -> (u8, std::cmp::Reverse<&str>) {
        let rank = ["today", "yesterday", "previous_7_days", "previous_30_days"];
        let place = rank.iter().position(|name| *name == group).unwrap_or(rank.len());
        (place as u8, std::cmp::Reverse(if place == rank.len() { group } else { "" }))
    }

    proptest! {
        #[test]
        fn a_newest_first_list_never_returns_to_a_group(
            now in 1_500_000_000i64..2_000_000_000, older in 0i64..20_000_000, oldest in 0i64..20_000_000,
            zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "Pacific/Apia", "America/St_Johns"]),
        ) {
            let tz = time_zone(zone).unwrap();
            let at = |seconds| Timestamp::from_second(seconds).unwrap();
            let newer = group(at(now - older), at(now), &tz);
            let older = group(at(now - older - oldest), at(now), &tz);
            prop_assert!(order(&newer) <= order(&older), "{} then {}", newer, older);
        }
    }
}
