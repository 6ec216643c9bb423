//! Each vendor's answers as they were sent, and the events that are read from them, held still by files; and what is
//! read of one that is cut off at any byte.

use std::path::{Path, PathBuf};

use serde_json::to_value;
use testkit::sandbox::ScriptedSandbox;

use crate::golden::held;
use crate::vendor::{VENDORS, Vendor, WIDE, body, body_bytes, listen};

const ANSWERS: [&str; 5] = ["calls", "length", "refused", "error", "others"];

fn sent(name: &str, vendor: Vendor) -> String {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/answers");
    std::fs::read_to_string(folder.join(format!("{name}.{}.sse", vendor.name()))).unwrap()
}

#[tokio::test]
async fn answers_are_read_as_they_were() {
    for vendor in VENDORS {
        for name in ANSWERS {
            let server = ScriptedSandbox::start(body(&sent(name, vendor))).await.unwrap();
            let (_, events) = listen(&*vendor.model(&server.url(), WIDE)).await;
            held(&format!("answers/{name}.{}.json", vendor.name()), &to_value(&events).unwrap());
        }
    }
}

/// A part is never taken for the whole: what ends well has every word and every call.
#[tokio::test]
async fn an_answer_with_calls_that_is_cut_at_any_byte_is_no_whole_one() {
    for vendor in VENDORS {
        let answer = sent("calls", vendor);
        let server = ScriptedSandbox::start(body(&answer)).await.unwrap();
        let model = vendor.model(&server.url(), WIDE);
        for at in 0..answer.len() {
            server.then(body_bytes(&answer.as_bytes()[..at]));
        }
        let (whole, _) = listen(&*model).await;
        assert_eq!((whole.text.as_str(), whole.calls.len()), ("I löok at both.", 2), "{vendor:?}");
        let mut ended_well = 0;
        for at in 0..answer.len() {
            let (got, _) = listen(&*model).await;
            assert!(whole.text.starts_with(&got.text), "{vendor:?} cut at {at}: {:?}", got.text);
            if got.end.as_ref().unwrap().is_ok() {
                ended_well += 1;
                assert_eq!(
                    (got.text, got.calls, got.end),
                    (whole.text.clone(), whole.calls.clone(), whole.end.clone())
                );
            }
        }
        // Only the last events, which say nothing more, may be missing.
        assert!(ended_well < 400, "{vendor:?}: {ended_well}");
    }
}
