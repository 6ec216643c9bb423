//! Times as exports spell them.

use jiff::Timestamp;
use serde_json::Value;

/// A time in any spelling that an export uses: RFC 3339, epoch seconds or milliseconds, as number or text.
pub fn read_time(value: &Value) -> Option<Timestamp> {
    match value {
        Value::Number(number) => number.as_f64().and_then(epoch),
        Value::String(text) => {
            let text = text.trim();
            if let Ok(number) = text.parse::<f64>() {
                return epoch(number);
            }
            // As databases print it: a space for the T, a zone of two digits or none.
            let mut spelled = text.replacen(' ', "T", 1);
            if spelled.len() > 3
                && matches!(spelled.as_bytes()[spelled.len() - 3], b'+' | b'-')
                && spelled.contains(':')
            {
                spelled.push_str(":00");
            }
            let parsed = spelled.parse::<Timestamp>().or_else(|_| format!("{spelled}Z").parse());
            let parsed = parsed.or_else(|_| format!("{spelled}T00:00:00Z").parse());
            parsed.ok().map(|at: Timestamp| crate::time::from_ms(at.as_millisecond()))
        }
        _ => None,
    }
}

fn epoch(number: f64) -> Option<Timestamp> {
    if !number.is_finite() || number <= 0.0 {
        return None;
    }
    // Seconds until the year 5138, milliseconds, or finer ones.
    let ms = match number {
        n if n < 1e11 => n * 1e3,
        n if n < 1e14 => n,
        n if n < 1e17 => n / 1e3,
        n => n / 1e6,
    };
    Timestamp::from_millisecond(ms.round() as i64).ok()
}
