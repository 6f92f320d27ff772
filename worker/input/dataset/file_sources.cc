// The records of one file: lines, TFRecord, fixed length.
#include <utility>

#include "common/errors.h"
#include "common/status.h"
#include "worker/input/dataset/record_file.h"
#include "worker/input/dataset/steps.h"
#include "worker/input/line_reader.h"

namespace cairn::steps {
namespace {

Tensor Text(std::string text) {
  std::vector<std::string> one;
  one.push_back(std::move(text));
  return Tensor::Texts({}, std::move(one));
}

class FileNode : public SourceNode {
 public:
  explicit FileNode(std::string file)
      : SourceNode(ElementSpec{TensorSpec::Texts(Shape{})}), file_(std::move(file)) {}
  int64_t cardinality() const override { return kUnknownCardinality; }

 protected:
  const std::string& file() const { return file_; }

 private:
  const std::string file_;
};

class TextLinesNode : public FileNode {
 public:
  using FileNode::FileNode;
  std::string name() const override { return "TextLine"; }
  absl::StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(
      const IterationContext& context) const override {
    ASSIGN_OR_RETURN(auto lines, LineReader::Open(file()));
    return std::make_unique<Iterator>(std::move(lines));
  }

 private:
  class Iterator : public DatasetIterator {
   public:
    explicit Iterator(std::unique_ptr<LineReader> lines) : lines_(std::move(lines)) {}
    absl::StatusOr<bool> Next(Element* element) override {
      absl::string_view line;
      if (!lines_->Next(&line)) {
        RETURN_IF_ERROR(lines_->status());
        return false;
      }
      element->assign(1, Text(std::string(line)));
      return true;
    }

   private:
    const std::unique_ptr<LineReader> lines_;
  };
};

class TFRecordsNode : public FileNode {
 public:
  TFRecordsNode(std::string file, Compression compression)
      : FileNode(std::move(file)), compression_(compression) {}
  std::string name() const override { return "TFRecord"; }
  absl::StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(
      const IterationContext& context) const override {
    ASSIGN_OR_RETURN(auto opened, RecordFile::Open(file(), compression_));
    return std::make_unique<Iterator>(std::move(opened));
  }

 private:
  class Iterator : public DatasetIterator {
   public:
    explicit Iterator(std::unique_ptr<RecordFile> file) : file_(std::move(file)) {}
    absl::StatusOr<bool> Next(Element* element) override {
      // After a corrupt record the next record's start cannot be found.
      RETURN_IF_ERROR(damage_);
      std::string record;
      absl::StatusOr<bool> more = ReadTFRecord(file_.get(), &record);
      damage_ = more.status();
      if (more.ok() && *more) element->assign(1, Text(std::move(record)));
      return more;
    }

   private:
    const std::unique_ptr<RecordFile> file_;
    absl::Status damage_;
  };

  const Compression compression_;
};

class FixedRecordsNode : public FileNode {
 public:
  FixedRecordsNode(std::string file, int64_t record_bytes, int64_t header_bytes,
                   int64_t footer_bytes)
      : FileNode(std::move(file)),
        record_bytes_(record_bytes),
        header_bytes_(header_bytes),
        footer_bytes_(footer_bytes) {}
  std::string name() const override { return "FixedLengthRecord"; }
  absl::StatusOr<std::unique_ptr<DatasetIterator>> MakeIterator(
      const IterationContext& context) const override;

 private:
  class Iterator : public DatasetIterator {
   public:
    Iterator(std::unique_ptr<RecordFile> file, int64_t records, int64_t record_bytes)
        : file_(std::move(file)),
          left_(records),
          record_bytes_(static_cast<size_t>(record_bytes)) {}
    absl::StatusOr<bool> Next(Element* element) override {
      if (left_ == 0) return false;
      std::string record(record_bytes_, '\0');
      ASSIGN_OR_RETURN(const size_t read, file_->Read(record.data(), record.size()));
      if (read < record.size()) {
        return DataLoss(file_->path(), ": ends at byte ", file_->offset(), ", inside a record of ",
                        record_bytes_, " bytes; it was cut meanwhile");
      }
      --left_;
      element->assign(1, Text(std::move(record)));
      return true;
    }

   private:
    const std::unique_ptr<RecordFile> file_;
    int64_t left_;
    const size_t record_bytes_;
  };

  const int64_t record_bytes_;
  const int64_t header_bytes_;
  const int64_t footer_bytes_;
};

absl::StatusOr<std::unique_ptr<DatasetIterator>> FixedRecordsNode::MakeIterator(
    const IterationContext& context) const {
  ASSIGN_OR_RETURN(auto opened, RecordFile::Open(file(), Compression::kNone));
  const int64_t file_bytes = opened->file_bytes();
  const int64_t between = file_bytes - header_bytes_ - footer_bytes_;
  if (between < 0 || between % record_bytes_ != 0) {
    return InvalidArgument(file(), ": of its ", file_bytes, " bytes, a header of ", header_bytes_,
                           " and a footer of ", footer_bytes_,
                           " leave no whole number of records of ", record_bytes_, " bytes");
  }
  RETURN_IF_ERROR(opened->SkipTo(header_bytes_));
  return std::make_unique<Iterator>(std::move(opened), between / record_bytes_, record_bytes_);
}

}  // namespace

NodePtr TextLines(std::string file) { return std::make_shared<TextLinesNode>(std::move(file)); }

NodePtr Records(std::string file, Compression compression) {
  return std::make_shared<TFRecordsNode>(std::move(file), compression);
}

NodePtr FixedRecords(std::string file, int64_t record_bytes, int64_t header_bytes,
                     int64_t footer_bytes) {
  return std::make_shared<FixedRecordsNode>(std::move(file), record_bytes, header_bytes,
                                            footer_bytes);
}

}  // namespace cairn::steps
