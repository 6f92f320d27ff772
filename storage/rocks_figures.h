// What RocksDB counts of itself. Internal to storage/: it names RocksDB.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rocksdb/db.h"
#include "storage/stripe_store.h"

namespace cairn {

// Its properties, and of its tickers those that an operator looks at.
std::vector<StoreFigure> FiguresOf(rocksdb::DB& db);

// Of all files in `folder` and below; those that go meanwhile may count or not.
int64_t FolderBytes(const std::string& folder);

}  // namespace cairn
