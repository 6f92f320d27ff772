#include "worker/input/idx.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/errors.h"
#include "common/shape.h"
#include "common/status.h"
#include "worker/input/byte_source.h"
#include "worker/input/labels.h"

namespace cairn {
namespace {

constexpr int64_t kMaxPixels = 1 << 24;

// One IDX file of unsigned bytes: big-endian header, then items of item_bytes.
class IdxFile {
 public:
  absl::Status Open(const std::string& path, int axes_wanted) {
    path_ = path;
    offset_ = begin_ = end_ = 0;
    ASSIGN_OR_RETURN(source_, ByteSource::Open(path));
    unsigned char magic[4];
    RETURN_IF_ERROR(Take(4, magic, "the magic number"));
    const int axes = magic[3];
    if (magic[0] != 0 || magic[1] != 0 || magic[2] != 0x08 ||
        (axes_wanted == 1 ? axes != 1 : axes < 2 || axes > 4)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: found magic %02x%02x%02x%02x; %s", path, magic[0], magic[1], magic[2], magic[3],
          axes_wanted == 1 ? "labels in idx format start with 00000801"
                           : "images in idx format start with 00000803 (unsigned bytes, 3 axes)"));
    }
    shape_.clear();
    for (int i = 0; i < axes; ++i) {
      unsigned char b[4];
      RETURN_IF_ERROR(Take(4, b, "the shape"));
      shape_.push_back((int64_t{b[0]} << 24) | (b[1] << 16) | (b[2] << 8) | b[3]);
    }
    const absl::StatusOr<int64_t> pixels = ElementCount(absl::MakeSpan(shape_).subspan(1));
    if (!pixels.ok() || *pixels < 1 || *pixels > kMaxPixels) {
      return InvalidArgument(path, ": found shape ", ShapeText(shape_), "; an item has 1 to ",
                             kMaxPixels, " bytes");
    }
    item_bytes_ = *pixels;
    return absl::OkStatus();
  }

  absl::Status Take(int64_t count, unsigned char* into, absl::string_view what) {
    while (count > 0) {
      if (begin_ == end_) RETURN_IF_ERROR(Fill());
      if (begin_ == end_) {
        return InvalidArgument(path_, ": ends at byte ", offset_, " inside ", what,
                               shape_.empty() ? "" : absl::StrCat(", shape ", ShapeText(shape_)));
      }
      const size_t part = std::min(static_cast<size_t>(count), end_ - begin_);
      if (into != nullptr) {
        std::memcpy(into, buffer_.data() + begin_, part);
        into += part;
      }
      begin_ += part;
      offset_ += static_cast<int64_t>(part);
      count -= static_cast<int64_t>(part);
    }
    return absl::OkStatus();
  }

  absl::Status ExpectEnd() {
    if (begin_ == end_) RETURN_IF_ERROR(Fill());
    if (begin_ == end_) return absl::OkStatus();
    return InvalidArgument(path_, ": goes on after byte ", offset_, ", where its shape ",
                           ShapeText(shape_), " ends; header and data do not fit");
  }

  const std::string& path() const { return path_; }
  int64_t items() const { return shape_[0]; }
  int64_t item_bytes() const { return item_bytes_; }
  int64_t offset() const { return offset_; }

 private:
  absl::Status Fill() {
    buffer_.resize(256 << 10);
    ASSIGN_OR_RETURN(end_, source_->Read(reinterpret_cast<char*>(buffer_.data()), buffer_.size()));
    begin_ = 0;
    return absl::OkStatus();
  }

  std::string path_;
  std::unique_ptr<ByteSource> source_;
  std::vector<unsigned char> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  int64_t offset_ = 0;  // of the next unread byte, in the decompressed file
  Shape shape_;
  int64_t item_bytes_ = 1;
};

class IdxRows : public RowSource {
 public:
  IdxRows(const ReaderOptions& options, std::vector<DataFile> files, RowShard shard)
      : files_(std::move(files)), shard_(shard), labels_rule_(options) {}

  const Schema& schema() const override { return schema_; }
  const absl::Status& status() const override { return status_; }
  double epoch_share() const override {
    if (next_file_ == 0 || images_.items() == 0) return 1;
    const double left = static_cast<double>(left_) / static_cast<double>(images_.items());
    return (static_cast<double>(next_file_) - left) / static_cast<double>(files_.size());
  }

  absl::Status Rewind(int64_t) override {
    next_file_ = 0;
    left_ = 0;
    wait_ = shard_.worker;
    return status_ = files_.empty() ? absl::OkStatus() : OpenNext();
  }

  // A row is its pixels and its label.
  bool Next(std::string* bytes, RowPlace* place) override {
    if (!Advance()) return false;
    const auto pixels = static_cast<size_t>(images_.item_bytes());
    bytes->resize(bytes->size() + pixels + 1);
    auto* const to =
        reinterpret_cast<unsigned char*>(bytes->data()) + (bytes->size() - (pixels + 1));
    *place = {next_file_ - 1, labels_.offset()};
    return Check(TakeItem(to, to + pixels));
  }

  absl::Status Decode(absl::string_view bytes, const RowPlace& place, Batch* batch) const override {
    const auto* const pixels = reinterpret_cast<const unsigned char*>(bytes.data());
    const size_t count = bytes.size() - 1;
    float label = pixels[count];
    if (!labels_rule_.Apply(&label)) {
      return InvalidArgument(files_[place.file].labels, ": byte ", place.at, " is label ",
                             static_cast<int>(pixels[count]), "; ", labels_rule_.Allowed());
    }
    const size_t first = batch->dense.size();
    batch->dense.resize(first + count);
    float* const out = batch->dense.data() + first;
    for (size_t i = 0; i < count; ++i) out[i] = static_cast<float>(pixels[i]) / 255.0f;
    batch->labels.push_back(label);
    ++batch->rows;
    return absl::OkStatus();
  }

 private:
  bool Check(absl::Status status) {
    status_ = std::move(status);
    return status_.ok();
  }

  absl::Status OpenNext() {
    const DataFile& file = files_[next_file_++];
    RETURN_IF_ERROR(images_.Open(file.path, 3));
    RETURN_IF_ERROR(labels_.Open(file.labels, 1));
    if (images_.items() != labels_.items()) {
      return InvalidArgument(file.path, " has ", images_.items(), " images, ", file.labels, " has ",
                             labels_.items(), " labels; they must match");
    }
    if (schema_.dense_columns == 0) schema_.dense_columns = images_.item_bytes();
    if (schema_.dense_columns != images_.item_bytes()) {
      return InvalidArgument(file.path, ": images have ", images_.item_bytes(),
                             " pixels, those of the first file ", schema_.dense_columns);
    }
    left_ = images_.items();
    return absl::OkStatus();
  }

  // Moves to this worker's next item.
  bool Advance() {
    if (!status_.ok()) return false;
    for (;; --wait_) {
      while (left_ == 0) {
        if (next_file_ > 0 && (!Check(images_.ExpectEnd()) || !Check(labels_.ExpectEnd()))) {
          return false;
        }
        if (next_file_ == files_.size() || !Check(OpenNext())) return false;
      }
      if (wait_ == 0) break;
      if (!Check(TakeItem(nullptr, nullptr))) return false;
    }
    wait_ = shard_.workers - 1;
    return true;
  }

  // Null: skips the item.
  absl::Status TakeItem(unsigned char* pixels, unsigned char* label) {
    --left_;
    RETURN_IF_ERROR(images_.Take(images_.item_bytes(), pixels, "an image"));
    return labels_.Take(1, label, "the labels");
  }

  const std::vector<DataFile> files_;
  const RowShard shard_;
  const LabelRule labels_rule_;
  Schema schema_;
  IdxFile images_;
  IdxFile labels_;
  size_t next_file_ = 0;
  int64_t left_ = 0;  // items of the open pair that are still unread
  int64_t wait_ = 0;  // items of other workers before this worker's next item
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowSource>> MakeIdxRows(const ReaderOptions& options,
                                                       std::vector<DataFile> files,
                                                       RowShard shard) {
  auto rows = std::make_unique<IdxRows>(options, std::move(files), shard);
  RETURN_IF_ERROR(rows->Rewind(0));
  return rows;
}

}  // namespace cairn
