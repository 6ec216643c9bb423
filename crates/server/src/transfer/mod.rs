//! In and out, the half that reads and writes: files, zips, blobs and the store. What the formats are is
//! `domain::transfer`.

mod before;
mod csv;
pub mod export;
pub mod import;
mod input;
pub mod output;
mod records;
pub mod report;
mod scan;
mod tables;
mod unzip;
pub mod walk;
