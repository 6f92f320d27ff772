// The cost of StripeStore's batches, checksums and visitors: compares StripeStore with RocksDB,
// called directly with the same options and the same bytes. One JSON line for each measurement:
// bytes of one round, MB/s of both (medians over alternating rounds), the median of the rounds'
// ratios, the bar, and whether the bytes read back were equal.
//
//   storage_bench [--directory D] [--megabytes N] [--rounds N]    D: on the disk to be measured
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/hash.h"
#include "common/status.h"
#include "rocksdb/db.h"
#include "rocksdb/write_batch.h"
#include "storage/checksum.h"
#include "storage/key.h"
#include "storage/rocks_options.h"
#include "storage/rocks_status.h"
#include "storage/stripe_store.h"
#include "tests/bench/bench.h"

ABSL_FLAG(std::string, directory, "/tmp", "where a folder for the measurement is made");
ABSL_FLAG(int, megabytes, 256, "MiB written in one round");
ABSL_FLAG(int, rounds, 5, "rounds of each side");

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr size_t kImageBytes = 256 << 10;
constexpr size_t kRowBytes = 144;  // 16 of metadata, 16 values and 16 slots in float32
constexpr size_t kRowsPerStripe = 1000;

// The data that one round writes, as stripes of variable 1.
struct Stripe {
  StripeId id;
  std::string image;                                  // an image, or rows
  std::vector<std::pair<int64_t, std::string>> rows;  // sorted by key
};

// Values and slots like those after training: normal values, positive accumulators.
std::string TrainedBytes(size_t bytes, std::mt19937_64& random) {
  std::normal_distribution<float> value(0, 0.05f);
  std::string text(bytes, '\0');
  for (size_t at = 0; at + 8 <= bytes; at += 8) {
    const float pair[2] = {value(random), 0.1f + std::abs(value(random)) * 1e-2f};
    std::memcpy(&text[at], pair, 8);
  }
  return text;
}

std::vector<Stripe> MakeImages(size_t total_bytes) {
  std::mt19937_64 random(1);
  std::vector<Stripe> stripes(total_bytes / kImageBytes);
  for (size_t i = 0; i < stripes.size(); ++i) {
    stripes[i].id = {1, 0, static_cast<uint32_t>(i)};
    stripes[i].image = TrainedBytes(kImageBytes, random);
  }
  return stripes;
}

std::vector<Stripe> MakeRows(size_t total_bytes) {
  std::mt19937_64 random(2);
  std::vector<Stripe> stripes(total_bytes / (kRowBytes * kRowsPerStripe));
  for (size_t i = 0; i < stripes.size(); ++i) {
    stripes[i].id = {1, 0, static_cast<uint32_t>(i)};
    std::vector<int64_t> keys(kRowsPerStripe);
    for (int64_t& key : keys) key = static_cast<int64_t>(random());
    std::sort(keys.begin(), keys.end());
    for (const int64_t key : keys) {
      stripes[i].rows.emplace_back(key, TrainedBytes(kRowBytes, random));
    }
  }
  return stripes;
}

size_t PayloadBytes(const std::vector<Stripe>& stripes) {
  size_t bytes = 0;
  for (const Stripe& stripe : stripes) {
    bytes += stripe.image.size();
    for (const auto& row : stripe.rows) bytes += row.second.size();
  }
  return bytes;
}

void WriteOurs(StripeStore& store, const std::vector<Stripe>& stripes) {
  const Watermark watermarks[] = {{0, 1000}, {1, 1001}};
  for (const Stripe& stripe : stripes) {
    const std::unique_ptr<StripeBatch> batch = store.NewBatch(stripe.id);
    batch->SetWatermarks(watermarks);
    if (!stripe.image.empty()) {
      const absl::string_view whole = stripe.image;  // values and slots are separate in a server
      const absl::string_view pieces[] = {whole.substr(0, whole.size() / 2),
                                          whole.substr(whole.size() / 2)};
      batch->PutImage(pieces);
    }
    for (const auto& [key, bytes] : stripe.rows) batch->PutRow(key, bytes);
    Require(store.Write(*batch));
  }
}

// The records that WriteOurs stores, prepared before the clock starts.
struct RawBatch {
  std::vector<std::pair<std::string, std::string>> records;
};

std::vector<RawBatch> MakeRaw(const std::vector<Stripe>& stripes) {
  std::vector<RawBatch> batches;
  for (const Stripe& stripe : stripes) {
    StripeKeys keys(stripe.id);
    RawBatch raw;
    raw.records.emplace_back(keys.Header(), std::string(36, 'h'));  // a header of 2 watermarks
    if (!stripe.image.empty()) {
      raw.records.emplace_back(keys.Image(), stripe.image + std::string(kChecksumBytes, 'c'));
    }
    if (!stripe.rows.empty()) {
      std::string rows(5, 's');  // a segment's head
      for (const auto& [key, bytes] : stripe.rows) absl::StrAppend(&rows, "rowskeys", bytes);
      raw.records.emplace_back(keys.Rows(0), rows + std::string(kChecksumBytes, 'c'));
    }
    batches.push_back(std::move(raw));
  }
  return batches;
}

void WriteRaw(rocksdb::DB& db, const std::vector<RawBatch>& batches) {
  for (const RawBatch& raw : batches) {
    rocksdb::WriteBatch batch;
    for (const auto& [key, value] : raw.records) Require(batch.Put(key, value));
    Require(db.Write(rocksdb::WriteOptions(), &batch));
  }
}

std::unique_ptr<rocksdb::DB> OpenRaw(const std::string& directory,
                                     rocksdb::CompressionType compression) {
  rocksdb::Options options = MakeRocksOptions(StoreOptions{});
  options.create_if_missing = true;
  options.compression = compression;
  rocksdb::DB* db = nullptr;
  Require(rocksdb::DB::Open(options, directory, &db));
  return std::unique_ptr<rocksdb::DB>(db);
}

std::unique_ptr<StripeStore> OpenOurs(const std::string& directory) {
  StoreOptions options;
  options.directory = directory;
  auto store = StripeStore::Open(options);
  Require(store.status());
  return *std::move(store);
}

// Sums the bytes that it visits, so that two readers of the same bytes can be compared.
class Sum : public StripeVisitor {
 public:
  absl::Status Header(const StripeId&, absl::Span<const Watermark>) override {
    return absl::OkStatus();
  }
  absl::Status Image(const StripeId&, absl::string_view bytes) override { return Add(bytes); }
  absl::Status Rows(const StripeId&, const StoredRows& rows) override {
    for (size_t i = 0; i < rows.size(); ++i) RETURN_IF_ERROR(Add(rows.row(i)));
    return absl::OkStatus();
  }
  absl::Status Add(absl::string_view bytes) {
    total_bytes += bytes.size();
    uint64_t first = 0;
    std::memcpy(&first, bytes.data(), std::min(bytes.size(), sizeof(first)));
    mixed += MixBits(first);
    return absl::OkStatus();
  }
  size_t total_bytes = 0;
  uint64_t mixed = 0;
};

// Compares every written byte, in order.
class Comparer : public StripeVisitor {
 public:
  explicit Comparer(const std::vector<Stripe>& expected) : expected_(expected) {}
  absl::Status Header(const StripeId& id, absl::Span<const Watermark> watermarks) override {
    equal_ = equal_ && id == expected_[at_].id && watermarks.size() == 2;
    row_ = 0;
    ++at_;
    return absl::OkStatus();
  }
  absl::Status Image(const StripeId&, absl::string_view bytes) override {
    equal_ = equal_ && bytes == absl::string_view(expected_[at_ - 1].image);
    return absl::OkStatus();
  }
  absl::Status Rows(const StripeId&, const StoredRows& read) override {
    const auto& rows = expected_[at_ - 1].rows;
    for (size_t i = 0; i < read.size(); ++i, ++row_) {
      equal_ = equal_ && row_ < rows.size() && rows[row_].first == read.key(i) &&
               absl::string_view(rows[row_].second) == read.row(i);
    }
    return absl::OkStatus();
  }
  bool equal() const { return equal_ && at_ == expected_.size(); }

 private:
  const std::vector<Stripe>& expected_;
  size_t at_ = 0;
  size_t row_ = 0;
  bool equal_ = true;
};

struct Rates {
  std::vector<double> ours, raw, ratio;
  void Add(double ours_seconds, double raw_seconds, size_t bytes) {
    ours.push_back(static_cast<double>(bytes) / ours_seconds / 1e6);
    raw.push_back(static_cast<double>(bytes) / raw_seconds / 1e6);
    ratio.push_back(raw_seconds / ours_seconds);
  }
};

void Report(absl::string_view name, const Rates& rates, size_t bytes, double bar, bool verified) {
  absl::PrintF(
      "{\"bench\":\"%s\",\"bytes\":%d,\"mb_per_s\":%.0f,\"raw_mb_per_s\":%.0f,\"ratio\":%.3f,"
      "\"bar\":%.2f,\"verified\":%s}\n",
      name, bytes, Median(rates.ours), Median(rates.raw), Median(rates.ratio), bar,
      verified ? "true" : "false");
  std::fflush(stdout);
}

// Writes into new directories, then reads both back.
void Measure(absl::string_view what, const std::vector<Stripe>& stripes, const fs::path& folder) {
  const std::vector<RawBatch> raw_batches = MakeRaw(stripes);
  const size_t bytes = PayloadBytes(stripes);
  Rates write;
  Rates load;
  bool verified = true;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    const std::string ours_path = folder / "ours";
    const std::string raw_path = folder / "raw";
    std::unique_ptr<StripeStore> ours = OpenOurs(ours_path);
    const double ours_write = SecondsOf([&] {
      WriteOurs(*ours, stripes);
      Require(ours->Sync());
    });
    std::unique_ptr<rocksdb::DB> raw = OpenRaw(raw_path, rocksdb::kNoCompression);
    const double raw_write = SecondsOf([&] {
      WriteRaw(*raw, raw_batches);
      Require(raw->SyncWAL());
    });
    write.Add(ours_write, raw_write, bytes);

    Require(ours->Close());
    ours = OpenOurs(ours_path);
    Require(raw->Flush(rocksdb::FlushOptions()));
    raw = nullptr;
    raw = OpenRaw(raw_path, rocksdb::kNoCompression);
    Comparer comparer(stripes);  // also brings the files into the page cache
    Require(ours->LoadStripes(1, comparer));
    verified = verified && comparer.equal();
    Sum raw_sum;
    const auto scan = [&] {
      raw_sum = {};
      const std::unique_ptr<rocksdb::Iterator> at(raw->NewIterator(MakeScanOptions()));
      for (at->SeekToFirst(); at->Valid(); at->Next()) {
        Require(raw_sum.Add(FromSlice(at->value())));
      }
      Require(at->status());
    };
    scan();
    Sum sum;
    const double ours_load = SecondsOf([&] { Require(ours->LoadStripes(1, sum)); });
    const double raw_load = SecondsOf(scan);
    load.Add(ours_load, raw_load, bytes);
    verified = verified && sum.total_bytes == bytes && raw_sum.total_bytes >= bytes;
    ours = nullptr;
    raw = nullptr;
    fs::remove_all(ours_path);
    fs::remove_all(raw_path);
  }
  Report(absl::StrCat("write_", what), write, bytes, 0.8, verified);
  Report(absl::StrCat("load_", what), load, bytes, 0.5, verified);
}

// The reason why rows are stored uncompressed: table bytes and rates with LZ4, divided by those
// without.
void MeasureCompression(const std::vector<Stripe>& stripes, const fs::path& folder) {
  const std::vector<RawBatch> batches = MakeRaw(stripes);
  double seconds[2];
  uint64_t table_bytes[2];
  for (const int lz4 : {0, 1}) {
    const std::string path = folder / (lz4 == 1 ? "lz4" : "none");
    const std::unique_ptr<rocksdb::DB> db =
        OpenRaw(path, lz4 == 1 ? rocksdb::kLZ4Compression : rocksdb::kNoCompression);
    seconds[lz4] = SecondsOf([&] {
      WriteRaw(*db, batches);
      Require(db->Flush(rocksdb::FlushOptions()));
    });
    Require(db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr));
    uint64_t live_bytes = 0;
    db->GetIntProperty(rocksdb::DB::Properties::kLiveSstFilesSize, &live_bytes);
    table_bytes[lz4] = live_bytes;
  }
  absl::PrintF(
      "{\"bench\":\"lz4_rows\",\"bytes\":%d,\"table_bytes_none\":%d,\"table_bytes_lz4\":%d,"
      "\"size_ratio\":%.3f,\"write_rate_ratio\":%.3f}\n",
      PayloadBytes(stripes), table_bytes[0], table_bytes[1],
      static_cast<double>(table_bytes[1]) / static_cast<double>(table_bytes[0]),
      seconds[0] / seconds[1]);
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  std::string folder = absl::GetFlag(FLAGS_directory) + "/cairn-storage-bench-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::perror(folder.c_str());
    return 1;
  }
  const size_t bytes = static_cast<size_t>(absl::GetFlag(FLAGS_megabytes)) << 20;
  cairn::Measure("images", cairn::MakeImages(bytes), folder);
  const std::vector<cairn::Stripe> rows = cairn::MakeRows(bytes);
  cairn::Measure("rows", rows, folder);
  cairn::MeasureCompression(rows, folder);
  std::filesystem::remove_all(folder);
  return 0;
}
