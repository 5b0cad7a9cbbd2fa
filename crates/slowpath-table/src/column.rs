// SPDX-License-Identifier: Apache-2.0
//! Columns and how a file stores them, as data; and what they are in Parquet's terms.

use parquet::basic::{
    Compression, ConvertedType, Encoding as PageEncoding, LogicalType, Repetition, TimeUnit,
    Type as Physical, ZstdLevel,
};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::schema::types::{ColumnDescriptor, ColumnPath, Type, TypePtr};
use std::sync::Arc;

/// The type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers of 64 bits.
    Int64,
    /// Whole numbers of 32 bits without a sign.
    UInt32,
    /// Whole numbers of 64 bits without a sign.
    UInt64,
    /// Microseconds since 1970-01-01T00:00:00Z.
    Timestamp,
    /// True or false.
    Bool,
    /// UTF-8.
    Text,
    /// A list of texts.
    TextList,
}

/// How the values of a column are encoded before compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// As positions in a dictionary of at most this size, bytes ([`None`]: [`Settings`]' limit);
    /// values past it as they are.
    Dictionary(Option<usize>),
    /// As they are.
    Plain,
    /// Numbers as packed differences.
    Delta,
}

/// Which minima and maxima a file states of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics {
    /// None.
    None,
    /// Those of each row group.
    Groups,
    /// Those of each row group and each page.
    Pages,
}

/// A column of a file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// Whether a row may have no value.
    pub nullable: bool,
    /// How its values are encoded.
    pub encoding: Encoding,
    /// Which statistics the file has of it.
    pub statistics: Statistics,
    /// The most rows of a page; [`None`]: [`Settings`]' limit.
    pub page_rows: Option<usize>,
}

impl Column {
    /// A nullable column with a dictionary and every statistic.
    pub fn new(name: impl Into<String>, kind: Kind) -> Self {
        Column {
            name: name.into(),
            kind,
            nullable: true,
            encoding: Encoding::Dictionary(None),
            statistics: Statistics::Pages,
            page_rows: None,
        }
    }

    /// The same without nulls.
    pub fn required(mut self) -> Self {
        self.nullable = false;
        self
    }
}

/// How a file is written. A limit that is [`None`] is the library's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The program that writes it, as `name version`.
    pub producer: String,
    /// Keys and values of the file's metadata.
    pub metadata: Vec<(String, String)>,
    /// zstd's level, 1 to 22.
    pub zstd_level: i32,
    /// Whether to leave out the index of pages.
    pub without_page_index: bool,
    /// The most rows of a page.
    pub page_rows: Option<usize>,
    /// The most bytes of a page, before compression.
    pub page_bytes: Option<usize>,
    /// The most bytes of a column's dictionary.
    pub dictionary_bytes: Option<usize>,
}

impl Settings {
    /// The metadata in Parquet's terms; nothing where there is none.
    pub(crate) fn pairs(&self) -> Option<Vec<KeyValue>> {
        let pairs = self.metadata.iter();
        let pairs = pairs.map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        let pairs: Vec<KeyValue> = pairs.collect();
        (!pairs.is_empty()).then_some(pairs)
    }

    pub(crate) fn properties(&self, columns: &[Column]) -> Result<WriterPropertiesPtr> {
        let mut properties = WriterProperties::builder()
            .set_created_by(self.producer.clone())
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(self.zstd_level)?))
            .set_offset_index_disabled(self.without_page_index)
            .set_key_value_metadata(self.pairs());
        if let Some(rows) = self.page_rows {
            properties = properties.set_data_page_row_count_limit(rows);
        }
        if let Some(bytes) = self.page_bytes {
            properties = properties.set_data_page_size_limit(bytes);
        }
        if let Some(bytes) = self.dictionary_bytes {
            properties = properties.set_dictionary_page_size_limit(bytes);
        }
        for column in columns {
            let path = column.path();
            let statistics = match column.statistics {
                Statistics::None => EnabledStatistics::None,
                Statistics::Groups => EnabledStatistics::Chunk,
                Statistics::Pages => EnabledStatistics::Page,
            };
            properties = properties.set_column_statistics_enabled(path.clone(), statistics);
            if let Some(rows) = column.page_rows {
                properties = properties.set_column_data_page_row_count_limit(path.clone(), rows);
            }
            properties = match column.encoding {
                Encoding::Dictionary(None) => properties,
                Encoding::Dictionary(Some(bytes)) => {
                    properties.set_column_dictionary_page_size_limit(path, bytes)
                }
                Encoding::Plain => properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, PageEncoding::PLAIN),
                Encoding::Delta => properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, PageEncoding::DELTA_BINARY_PACKED),
            };
        }
        Ok(Arc::new(properties.build()))
    }
}

/// Names of the two levels below a list.
const LIST: [&str; 2] = ["list", "element"];

impl Column {
    /// Where its values are below the schema's root.
    fn path(&self) -> ColumnPath {
        let mut path = vec![self.name.clone()];
        if self.kind == Kind::TextList {
            path.extend(LIST.map(str::to_owned));
        }
        ColumnPath::new(path)
    }

    fn schema(&self) -> Result<Type> {
        let repetition = match self.nullable {
            true => Repetition::OPTIONAL,
            false => Repetition::REQUIRED,
        };
        if self.kind != Kind::TextList {
            return primitive(&self.name, self.kind, repetition);
        }
        let element = primitive(LIST[1], Kind::Text, Repetition::OPTIONAL)?;
        let list = Type::group_type_builder(LIST[0])
            .with_fields(vec![Arc::new(element)])
            .with_repetition(Repetition::REPEATED)
            .build()?;
        Type::group_type_builder(&self.name)
            .with_fields(vec![Arc::new(list)])
            .with_logical_type(Some(LogicalType::List))
            .with_repetition(repetition)
            .build()
    }
}

fn primitive(name: &str, kind: Kind, repetition: Repetition) -> Result<Type> {
    let (physical, logical) = match kind {
        Kind::Int64 => (Physical::INT64, None),
        Kind::UInt32 => (Physical::INT32, Some(LogicalType::integer(32, false))),
        Kind::UInt64 => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Kind::Timestamp => {
            let utc = LogicalType::timestamp(true, TimeUnit::MICROS);
            (Physical::INT64, Some(utc))
        }
        Kind::Bool => (Physical::BOOLEAN, None),
        Kind::Text | Kind::TextList => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    Type::primitive_type_builder(name, physical)
        .with_logical_type(logical)
        .with_repetition(repetition)
        .build()
}

/// The schema of a file with these columns. Its root has the name that files of all versions
/// have had.
pub(crate) fn schema(columns: &[Column]) -> Result<TypePtr> {
    let fields = columns.iter().map(|c| c.schema().map(Arc::new));
    let root = Type::group_type_builder("arrow_schema")
        .with_fields(fields.collect::<Result<_>>()?)
        .build()?;
    Ok(Arc::new(root))
}

/// The type of a column of a file, if it is one of ours: a list in the three levels that the
/// format describes, or no nesting at all.
pub(crate) fn kind_of(column: &ColumnDescriptor) -> Option<Kind> {
    let flat = match (column.physical_type(), column.logical_type_ref()) {
        (Physical::BOOLEAN, _) => Kind::Bool,
        (Physical::INT32, Some(logical)) if *logical == LogicalType::integer(32, false) => {
            Kind::UInt32
        }
        (Physical::INT64, Some(logical)) if *logical == LogicalType::integer(64, true) => {
            Kind::Int64
        }
        (Physical::INT64, Some(logical)) if *logical == LogicalType::integer(64, false) => {
            Kind::UInt64
        }
        (Physical::INT64, Some(LogicalType::Timestamp(time))) if time.unit == TimeUnit::MICROS => {
            Kind::Timestamp
        }
        (Physical::BYTE_ARRAY, Some(LogicalType::String)) => Kind::Text,
        // Older writers have only these.
        (physical, None) => match (physical, column.converted_type()) {
            (Physical::INT32, ConvertedType::UINT_32) => Kind::UInt32,
            (Physical::INT64, ConvertedType::NONE | ConvertedType::INT_64) => Kind::Int64,
            (Physical::INT64, ConvertedType::UINT_64) => Kind::UInt64,
            (Physical::INT64, ConvertedType::TIMESTAMP_MICROS) => Kind::Timestamp,
            (Physical::BYTE_ARRAY, ConvertedType::UTF8) => Kind::Text,
            _ => return None,
        },
        _ => return None,
    };
    match (column.path().parts().len(), column.max_rep_level(), flat) {
        (1, 0, flat) => Some(flat),
        (3, 1, Kind::Text) => Some(Kind::TextList),
        _ => None,
    }
}

/// What is wrong with a file, in this crate's words.
pub(crate) fn damaged(what: impl Into<String>) -> ParquetError {
    ParquetError::General(what.into())
}
