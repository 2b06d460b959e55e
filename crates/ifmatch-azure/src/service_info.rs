//! Service properties and statistics, and the account's kind.

use http::{HeaderName, HeaderValue, Response, StatusCode};
use ifmatch_blob::body::BlobBody;

use crate::response::{self, XmlWriter};

/// The properties of the Blob service: logging, metrics and soft delete are off.
pub(crate) fn blob_properties() -> Response<BlobBody> {
    let mut xml = common_properties();
    switched_off(&mut xml, "DeleteRetentionPolicy");
    switched_off(&mut xml, "StaticWebsite");
    response::document(xml.end(PROPERTIES))
}

/// The properties of the Table service: logging and metrics are off.
pub fn table_properties() -> Response<BlobBody> {
    response::document(common_properties().end(PROPERTIES))
}

const PROPERTIES: &str = "StorageServiceProperties";

/// Begins the properties that both services have.
fn common_properties() -> XmlWriter {
    let mut xml = XmlWriter::begin(PROPERTIES);
    xml.open("Logging");
    xml.text("Version", "1.0");
    for name in ["Delete", "Read", "Write"] {
        xml.text(name, "false");
    }
    switched_off(&mut xml, "RetentionPolicy");
    xml.close("Logging");
    for name in ["HourMetrics", "MinuteMetrics"] {
        xml.open(name);
        xml.text("Version", "1.0");
        xml.text("Enabled", "false");
        switched_off(&mut xml, "RetentionPolicy");
        xml.close(name);
    }
    xml.text("Cors", "");
    xml
}

/// Adds a feature that is off.
fn switched_off(xml: &mut XmlWriter, name: &str) {
    xml.open(name);
    xml.text("Enabled", "false");
    xml.close(name);
}

/// A service's statistics. A second location doesn't exist.
pub fn statistics() -> Response<BlobBody> {
    const STATISTICS: &str = "StorageServiceStats";
    let mut xml = XmlWriter::begin(STATISTICS);
    xml.open("GeoReplication");
    xml.text("Status", "unavailable");
    xml.text("LastSyncTime", "");
    xml.close("GeoReplication");
    response::document(xml.end(STATISTICS))
}

/// The SKU and kind of the account.
pub(crate) fn account_information() -> Response<BlobBody> {
    let mut response = response::empty(StatusCode::OK, None, None);
    let fields = [
        ("x-ms-sku-name", "Standard_LRS"),
        ("x-ms-account-kind", "StorageV2"),
        ("x-ms-is-hns-enabled", "false"),
    ];
    let fields = fields.map(|(name, value)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )
    });
    response.headers_mut().extend(fields);
    response
}
