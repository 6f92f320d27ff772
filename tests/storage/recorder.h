// Shared by a store's tests: opens a store, fills stripes, and reads everything back.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "storage/stripe_store.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace cairn {

// A stripe as shown by LoadStripes.
struct LoadedStripe {
  StripeId id;
  std::vector<Watermark> watermarks;
  std::vector<std::string> images;
  std::vector<std::pair<int64_t, std::string>> rows;
  int64_t cold_count = 0;
  std::vector<std::string> waiting;  // by page
  std::string ages;
};

// Keeps every stripe in the order of the visit, and every row at the position where its key came
// first.
class Recorder : public StripeVisitor {
 public:
  absl::Status Header(const StripeId& id, absl::Span<const Watermark> watermarks) override {
    stripes.push_back({id, {watermarks.begin(), watermarks.end()}, {}, {}});
    return absl::OkStatus();
  }
  absl::Status Image(const StripeId& id, absl::string_view bytes) override {
    EXPECT_EQ(stripes.back().id, id);
    stripes.back().images.emplace_back(bytes);
    return absl::OkStatus();
  }
  absl::Status Rows(const StripeId& id, const StoredRows& rows) override {
    EXPECT_EQ(stripes.back().id, id);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows.row_bytes() == 0) {
        std::erase_if(stripes.back().rows,
                      [&](const auto& row) { return row.first == rows.key(i); });
      } else {
        Set(rows.key(i), rows.row(i));
      }
    }
    return absl::OkStatus();
  }
  absl::Status ColdCount(const StripeId& id, int64_t rows) override {
    EXPECT_EQ(stripes.back().id, id);
    stripes.back().cold_count = rows;
    return absl::OkStatus();
  }
  absl::Status Waiting(const StripeId& id, uint32_t page, absl::string_view bytes) override {
    EXPECT_EQ(stripes.back().id, id);
    EXPECT_EQ(stripes.back().waiting.size(), page);
    stripes.back().waiting.emplace_back(bytes);
    return absl::OkStatus();
  }
  absl::Status Ages(const StripeId& id, absl::string_view bytes) override {
    EXPECT_EQ(stripes.back().id, id);
    stripes.back().ages = std::string(bytes);
    return absl::OkStatus();
  }
  std::vector<LoadedStripe> stripes;

 private:
  void Set(int64_t key, absl::string_view bytes) {
    for (auto& row : stripes.back().rows) {
      if (row.first != key) continue;
      row.second = std::string(bytes);
      return;
    }
    stripes.back().rows.emplace_back(key, bytes);
  }
};

inline absl::StatusOr<std::unique_ptr<StripeStore>> OpenStore(const std::string& directory,
                                                              int32_t server_index = 0) {
  StoreOptions options;
  options.directory = directory;
  options.server_index = server_index;
  return StripeStore::Open(options);
}

inline absl::Status WriteImage(StripeStore& store, const StripeId& id, int64_t sequence,
                               absl::string_view image) {
  const std::unique_ptr<StripeBatch> batch = store.NewBatch(id);
  const Watermark watermark{0, sequence};
  batch->SetWatermarks({&watermark, 1});
  batch->PutImage({&image, 1});
  return store.Write(*batch);
}

// A store in a directory of its own, which is closed and opened again as often as a test wants.
class ReopenedStore : public ::testing::Test {
 protected:
  void SetUp() override { Reopen(); }
  void Reopen() {
    if (store_ != nullptr) {
      ASSERT_OK(store_->Close());
    }
    store_ = nullptr;
    auto opened = OpenStore(directory_);
    ASSERT_OK(opened);
    store_ = *std::move(opened);
  }

  TempDir temp_;
  const std::string directory_ = temp_.Join("data");
  std::unique_ptr<StripeStore> store_;
};

}  // namespace cairn
