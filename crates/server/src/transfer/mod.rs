//! In and out, the half that reads and writes: files, zips, blobs and the store. What the formats are is
//! `domain::transfer`.

pub mod export;
pub mod import;
mod input;
pub mod output;
pub mod report;
mod scan;
mod unzip;
mod walk;
