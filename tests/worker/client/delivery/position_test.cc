// Computes where a worker's new start resumes from the servers' records: never after a push that
// some server lacks, never at a position of another sequence.
#include "worker/client/delivery/position.h"

#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "thrift/limits.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

std::string Encoded(int64_t sequence, std::vector<int64_t> last_part, std::string position) {
  std::string out;
  EncodePosition(sequence, last_part, position, &out);
  return out;
}

TEST(ResumePoint, OfNothingIsTheStart) {
  const ResumePoint point = ChooseResumePoint({{0, ""}, {0, ""}});
  EXPECT_EQ(point.sequence, 0);
  EXPECT_EQ(point.position, "");
  EXPECT_THAT(point.last_part, ElementsAre(0, 0));
}

TEST(ResumePoint, IsTheLowestWhereEveryPushHasAPartEverywhere) {
  const ResumePoint point =
      ChooseResumePoint({{7, Encoded(7, {7, 7}, "seven")}, {5, Encoded(5, {5, 5}, "five")}});
  EXPECT_EQ(point.sequence, 5);
  EXPECT_EQ(point.position, "five");
  EXPECT_THAT(point.last_part, ElementsAre(5, 5));
}

TEST(ResumePoint, DoesNotWaitForAServerThatHoldsNoPart) {
  const ResumePoint point = ChooseResumePoint({{10, Encoded(10, {10, 0}, "ten")}, {3, ""}});
  EXPECT_EQ(point.sequence, 10);
  EXPECT_EQ(point.position, "ten");
  EXPECT_THAT(point.last_part, ElementsAre(10, 0));
}

TEST(ResumePoint, StepsBackFromAPushThatOneServerLacks) {
  // Push 10 reached only server 0; server 1 has 8, its last part before it.
  const ResumePoint point =
      ChooseResumePoint({{10, Encoded(10, {10, 10}, "ten")}, {8, Encoded(8, {7, 8}, "eight")}});
  EXPECT_EQ(point.sequence, 8);
  EXPECT_EQ(point.position, "eight");
}

// Push 10 has reached servers 0 and 1 but not 2, which has some of its rows. Two positions record
// this under different maps, and only one of them asks server 3 for a part.
TEST(ResumePoint, SaysWhomAPositionDoesNotAskForWhatOthersHave) {
  const ResumePoint point = ChooseResumePoint({{10, Encoded(10, {10, 10, 10, 8}, "ten")},
                                               {10, Encoded(10, {10, 10, 10, 10}, "ten")},
                                               {9, Encoded(9, {9, 9, 9, 8}, "nine")},
                                               {8, Encoded(8, {7, 8, 8, 8}, "eight")}});
  EXPECT_EQ(point.sequence, 9);
  EXPECT_THAT(point.assumed_complete,
              ElementsAre(ElementsAre(), ElementsAre(), ElementsAre(),
                          ElementsAre(SequenceRange{.after = 9, .through = 10})));
}

TEST(ResumePoint, StartsOverWhereNoPositionIsEverybodys) {
  // Server 1 lost everything; server 0 kept one position, which needs server 1.
  EXPECT_EQ(ChooseResumePoint({{10, Encoded(10, {10, 9}, "ten")}, {0, ""}}).sequence, 0);
  // Both kept a number that `through` raised, so they have no position.
  EXPECT_EQ(ChooseResumePoint({{11, ""}, {8, ""}}).sequence, 0);
}

TEST(ResumePoint, TakesAPlainPositionForTheUsers) {
  const ResumePoint point = ChooseResumePoint({{4, "{\"epoch\": 1}"}, {6, "{\"epoch\": 2}"}});
  EXPECT_EQ(point.sequence, 4);
  EXPECT_EQ(point.position, "{\"epoch\": 1}");
  EXPECT_EQ(ChooseResumePoint({{4, ""}, {4, ""}}).sequence, 4);
}

TEST(ResumePoint, DoesNotTrustADamagedRecord) {
  const std::string good = Encoded(1000, {1000, 900}, "x");
  for (size_t size = 0; size < good.size(); ++size) {
    const ResumePoint point = ChooseResumePoint({{3, good.substr(0, size)}, {3, ""}});
    EXPECT_LE(point.sequence, 3) << size;
  }
  // From a job with a different number of servers.
  EXPECT_LE(ChooseResumePoint({{3, Encoded(3, {3}, "x")}, {2, ""}}).sequence, 3);
}

TEST(EncodedPosition, IsShort) {
  // Two servers with close sequences: only a few bytes besides the user's.
  EXPECT_LE(Encoded(1000000, {1000000, 999990}, "").size(), 8u);
  // A push with a part on every server, and one with a part on the last server only.
  std::vector<int64_t> last_part(kMaxServers, 1000000);
  EXPECT_LE(Encoded(1000000, last_part, "").size(), 12u);
  last_part.assign(kMaxServers, 0);
  last_part.back() = 1000000;
  EXPECT_LE(Encoded(1000000, last_part, "").size(), 12u);
}

// A server that has joined without rows, or left, has no part.
TEST(EncodedPosition, OfAsManyServersAsThereCanBeFitsIntoItsLimit) {
  constexpr int64_t kSequence = int64_t{1} << 62;
  const std::string user(512, 'p');
  ASSERT_TRUE(CheckUserPosition(user).ok());
  std::vector<int64_t> last_part;
  for (int64_t s = 0; s < kMaxServers; ++s) {
    last_part.push_back(kSequence - (int64_t{1} << 34) + 2 + s);
  }
  EXPECT_LE(Encoded(kSequence, last_part, user).size(), kMaxPositionBytes);
  last_part[7] = 0;
  EXPECT_LE(Encoded(kSequence, last_part, user).size(), kMaxPositionBytes);
}

ResumePoint Decoded(const std::string& position, size_t servers, int64_t applied) {
  std::vector<ResumeAnswer> answers(servers, {applied, ""});
  answers[0].position = position;
  return ChooseResumePoint(answers);
}

TEST(EncodedPosition, IsReadAsItWasWritten) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const auto sequence = static_cast<int64_t>(random() >> (1 + random() % 63)) | 1;
    std::vector<int64_t> last_part(1 + random() % 40);
    const uint64_t lags = 1 + random() % 4;
    for (int64_t& last : last_part) {
      const auto lag = static_cast<int64_t>(random() % lags);
      last = random() % 3 == 0 ? 0 : std::max<int64_t>(sequence - lag * lag * lag, 0);
    }
    const ResumePoint point =
        Decoded(Encoded(sequence, last_part, "user's"), last_part.size(), sequence);
    ASSERT_EQ(point.sequence, sequence) << i;
    ASSERT_EQ(point.position, "user's") << i;
    ASSERT_EQ(point.last_part, last_part) << i;
  }
}

TEST(EncodedPosition, OfEarlierReleasesIsRead) {
  // Sequence 300, three servers: all with a part, 0, 1 and 200 behind.
  const std::string text("\xC1\x01\xAC\x02\x03\x00\x01\xC8\x01user", 13);
  const ResumePoint dense = Decoded(text, 4, 300);
  EXPECT_THAT(dense.last_part, ElementsAre(300, 299, 100, 0));
  EXPECT_EQ(dense.position, "user");
  // Sequence 300: two servers with a part, each after a skipped one, 1 and 200 behind.
  const ResumePoint sparse = Decoded("\xC1\x02\xAC\x02\x02\x01\x01\x01\xC8\x01user", 4, 300);
  EXPECT_THAT(sparse.last_part, ElementsAre(0, 299, 0, 100));
  EXPECT_EQ(sparse.position, "user");
}

}  // namespace
}  // namespace cairn
