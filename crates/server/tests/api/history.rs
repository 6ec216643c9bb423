//! History: conversations grouped by the reader's own dates.

use domain::time::{Clock as _, SystemClock};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use serde_json::{Value, json};

use crate::world::{CONVERSATIONS, World, code, detail, parameter, stories};

stories!(groups_follow_the_readers_dates, only_zones_are_zones, groups_are_shown_on_demand);

/// The rule of the groups, told once more.
fn expected(at: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    let (date, today) = (at.to_zoned(zone.clone()).date(), now.to_zoned(zone.clone()).date());
    match today.since(date).unwrap().get_days() {
        ..=0 => "today".into(),
        1 => "yesterday".into(),
        2..=7 => "previous_7_days".into(),
        8..=30 => "previous_30_days".into(),
        _ => date.strftime("%Y-%m").to_string(),
    }
}

async fn groups_follow_the_readers_dates(world: World) {
    let now = SystemClock.now();
    for hours in [0, 5, 13, 20, 26, 40, 60, 24 * 6, 24 * 8 + 3, 24 * 25, 24 * 35, 24 * 400] {
        world.create_at(Some(&hours.to_string()), now - hours.hours()).await;
    }
    let mut seen = Vec::new();
    for name in ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Paris", "Asia/Kolkata"] {
        let zone = TimeZone::get(name).unwrap();
        // Midnight may pass between the question and the answer; then it is asked again.
        let (page, now) = loop {
            let before = SystemClock.now().to_zoned(zone.clone()).date();
            let page = world.list(&format!("timeZone={name}")).await;
            let now = SystemClock.now();
            if now.to_zoned(zone.clone()).date() == before {
                break (page, now);
            }
        };
        let items = page["data"].as_array().unwrap();
        assert_eq!(items.len(), 12);
        for item in items {
            let at: Timestamp = item["attributes"]["updated_at"].as_str().unwrap().parse().unwrap();
            assert_eq!(item["meta"]["group"], expected(at, now, &zone), "{at} at {now} in {name}");
            seen.push(item["meta"]["group"].as_str().unwrap().to_owned());
        }
    }
    for group in ["today", "yesterday", "previous_7_days", "previous_30_days"] {
        assert!(seen.iter().any(|found| found == group), "{group} of {seen:?}");
    }
    assert!(seen.iter().any(|found| found.len() == 7 && found.starts_with("20")), "a month of {seen:?}");
}

async fn only_zones_are_zones(world: World) {
    for bad in ["", "Mars/Olympus", "+02:00", "CET-1CEST", "../UTC", "Europe/", "local", "Europe%2FParis%00"]
    {
        let answer = world.get(&format!("{CONVERSATIONS}?timeZone={bad}")).await;
        assert_eq!((answer.status, code(&answer)), (400, "invalid_parameter"), "{bad}: {}", answer.text);
        assert_eq!(parameter(&answer), "timeZone");
        assert!(detail(&answer).contains("timeZone"), "{}", answer.text);
    }
    for good in ["Europe%2FParis", "Etc/GMT%2B5", "America/Argentina/Buenos_Aires"] {
        world.list(&format!("timeZone={good}")).await;
    }
}

async fn groups_are_shown_on_demand(world: World) {
    world.create(json!({ "title": "now" })).await;
    assert_eq!(world.list("").await["data"][0].get("meta"), None);
    assert_eq!(world.list("timeZone=UTC").await["data"][0]["meta"], json!({ "group": "today" }));
    let found: Value = world.list("timeZone=UTC&filter[query]=now").await["data"][0]["meta"].clone();
    assert_eq!((&found["group"], found["highlights"].as_array().unwrap().len()), (&json!("today"), 1));
}
