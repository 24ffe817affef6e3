// A doubly linked list whose links live in the elements: O(1) insert and erase, no allocation.
//
// An element derives from ListNode<Tag> once for each list it can be in, is in at most one list per tag, and removes
// itself when destroyed.  Elements are neither copied nor moved.  Threads: one.
#pragma once

#include "ring/base/check.hpp"

namespace postern {

template <class Tag = void>
class ListNode {
public:
    ListNode() = default;
    ListNode(const ListNode&) = delete;
    ListNode& operator=(const ListNode&) = delete;
    ~ListNode() { unlink(); }

    bool linked() const { return next_ != nullptr; }
    void unlink() {
        if (!next_) return;
        prev_->next_ = next_;
        next_->prev_ = prev_;
        next_ = prev_ = nullptr;
    }

private:
    template <class, class>
    friend class IntrusiveList;
    ListNode* prev_ = nullptr;
    ListNode* next_ = nullptr;
};

template <class Element, class Tag = void>
class IntrusiveList {
    using Node = ListNode<Tag>;

public:
    IntrusiveList() { head_.prev_ = head_.next_ = &head_; }
    IntrusiveList(const IntrusiveList&) = delete;
    IntrusiveList& operator=(const IntrusiveList&) = delete;
    ~IntrusiveList() {
        while (!empty()) head_.next_->unlink();
        head_.prev_ = head_.next_ = nullptr;
    }

    bool empty() const { return head_.next_ == &head_; }
    Element& front() { return *static_cast<Element*>(head_.next_); }
    void push_back(Element& element) { insert_before(head_, element); }
    void push_front(Element& element) { insert_before(*head_.next_, element); }
    Element* pop_front() {
        if (empty()) return nullptr;
        Element& first = front();
        static_cast<Node&>(first).unlink();
        return &first;
    }
    // Takes over all elements of `other`, behind our own.
    void splice_back(IntrusiveList& other) {
        while (Element* element = other.pop_front()) push_back(*element);
    }
    template <class Visit>
    void for_each(Visit&& visit) {      // visit may unlink its own element
        for (Node* node = head_.next_; node != &head_;) {
            Node* next = node->next_;
            visit(*static_cast<Element*>(node));
            node = next;
        }
    }

private:
    void insert_before(Node& place, Node& node) {
        CHECK_INVARIANT(!node.linked());
        node.prev_ = place.prev_;
        node.next_ = &place;
        place.prev_->next_ = &node;
        place.prev_ = &node;
    }
    Node head_;
};

}  // namespace postern
