// Next turns that begin with the ids of the last.
#include "chat/seen_turns.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "testing/models.h"

namespace mla::chat {
namespace {

using testing::Need;

const Tokenizer& Demo() {
  static const Tokenizer kTokenizer = Need(Tokenizer::Load(testing::DemoDir()));
  return kTokenizer;
}

ChatText Rendered(const std::vector<ChatMessage>& messages) {
  static const ChatTemplate kTemplate = Need(ChatTemplate::Load(testing::DemoDir()));
  ChatInput input;
  input.messages = ChatMessagesJson(messages);
  return Need(kTemplate.Render(input));
}

// A reply in tokens of one character each: no encoder cuts a text so.
std::vector<std::int32_t> Letters(const std::string& text) {
  std::vector<std::int32_t> ids;
  for (const char c : text) {
    const auto one = Need(Demo().Encode(std::string(1, c)));
    ids.insert(ids.end(), one.begin(), one.end());
  }
  return ids;
}

class SeenTurnsTest : public ::testing::Test {
 protected:
  const std::string reply_ = "the beginning of wisdom";
  const std::vector<ChatMessage> first_ = {{"user", "In"}};
  const std::vector<ChatMessage> next_ = {{"user", "In"}, {"assistant", reply_}, {"user", "and then"}};
  const ChatText asked_ = Rendered(first_);
  const std::vector<std::int32_t> asked_ids_ = Need(EncodeChat(Demo(), asked_));
  SeenTurns turns_{4, 1 << 16};

  void Add() { turns_.Add(Demo(), {asked_, asked_ids_}, Letters(reply_)); }
};

TEST_F(SeenTurnsTest, TheNextTurnBeginsWithTheIdsThatWereDrawn) {
  const ChatText now = Rendered(next_);
  const auto anew = Need(EncodeChat(Demo(), now));
  EXPECT_EQ(Need(turns_.Encode(Demo(), now)), anew) << "nothing has been seen";
  Add();
  const auto ids = Need(turns_.Encode(Demo(), now));
  std::vector<std::int32_t> seen = asked_ids_;
  const auto drawn = Letters(reply_);
  seen.insert(seen.end(), drawn.begin(), drawn.end());
  ASSERT_GT(ids.size(), seen.size());
  EXPECT_TRUE(std::equal(seen.begin(), seen.end(), ids.begin()));
  EXPECT_NE(ids, anew);
  EXPECT_EQ(Demo().Decode(ids, true), now.text);
  EXPECT_EQ(Need(turns_.Encode(Demo(), asked_)), asked_ids_) << "what was seen must begin it";
}

TEST_F(SeenTurnsTest, NotWhereTheTextOrWhoWroteItIsAnother) {
  Add();
  const auto is_encoded_anew = [&](const ChatText& now) {
    return Need(turns_.Encode(Demo(), now)) == Need(EncodeChat(Demo(), now));
  };
  EXPECT_TRUE(is_encoded_anew(Rendered({{"user", "In"}, {"assistant", reply_ + "."}, {"user", "a"}})))
      << "no special token follows what was seen";
  EXPECT_TRUE(is_encoded_anew(Rendered({{"user", "in"}, {"assistant", reply_}, {"user", "a"}})));
  ChatText forged = Rendered(next_);
  ASSERT_FALSE(is_encoded_anew(forged));
  forged.trusted.erase(forged.trusted.begin());
  EXPECT_TRUE(is_encoded_anew(forged)) << "the text of a special token, by a user";
}

TEST_F(SeenTurnsTest, AReplyWithASpecialTokenIsNotRemembered) {
  std::vector<std::int32_t> reply = Letters(reply_);
  reply.push_back(asked_ids_[0]);
  ASSERT_TRUE(Demo().IsSpecial(reply.back()));
  turns_.Add(Demo(), {asked_, asked_ids_}, reply);
  EXPECT_EQ(turns_.size(), 0U);
}

TEST_F(SeenTurnsTest, TheLeastRecentlyUsedAreForgotten) {
  Add();
  turns_.Add(Demo(), {Rendered(next_), Need(EncodeChat(Demo(), Rendered(next_)))}, Letters("so"));
  EXPECT_EQ(turns_.size(), 1U) << "a turn that goes on from another takes its place";
  const auto kept = [&] {
    return Need(turns_.Encode(
        Demo(),
        Rendered({{"user", "In"}, {"assistant", reply_}, {"user", "and then"}, {"assistant", "so"}, {"user", "x"}})));
  };
  const auto expected = kept();
  for (const char* word : {"a", "b", "c", "d"}) {
    const ChatText other = Rendered({{"user", word}});
    turns_.Add(Demo(), {other, Need(EncodeChat(Demo(), other))}, Letters(reply_));
    EXPECT_LE(turns_.size(), 4U);
    EXPECT_EQ(kept(), expected) << "it was used again and again";
  }
  for (const char* word : {"e", "f", "g", "h"}) {
    const ChatText other = Rendered({{"user", word}});
    turns_.Add(Demo(), {other, Need(EncodeChat(Demo(), other))}, Letters(reply_));
  }
  EXPECT_NE(kept(), expected);
  SeenTurns small(100, 40);
  small.Add(Demo(), {asked_, asked_ids_}, Letters(reply_));
  EXPECT_EQ(small.size(), 0U) << "larger than all that may be kept";
}

}  // namespace
}  // namespace mla::chat
