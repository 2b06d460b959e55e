//! Get Blob Service Properties and Get Account Information.

use http::{HeaderName, HeaderValue, Response, StatusCode};
use ifmatch_blob::body::BlobBody;

use crate::response::{self, xml::Xml};

/// The properties of the blob service: logging, metrics and soft delete are off.
pub(crate) fn properties() -> Response<BlobBody> {
    let mut xml = Xml::begin("StorageServiceProperties");
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
    switched_off(&mut xml, "DeleteRetentionPolicy");
    switched_off(&mut xml, "StaticWebsite");
    response::document(xml.end("StorageServiceProperties"))
}

fn switched_off(xml: &mut Xml, name: &str) {
    xml.open(name);
    xml.text("Enabled", "false");
    xml.close(name);
}

/// The SKU and kind of the account.
pub(crate) fn account_information() -> Response<BlobBody> {
    let mut response = response::empty(StatusCode::OK, None, None);
    let fields =
        [("x-ms-sku-name", "Standard_LRS"), ("x-ms-account-kind", "StorageV2"), ("x-ms-is-hns-enabled", "false")];
    let fields = fields.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    response.headers_mut().extend(fields);
    response
}
