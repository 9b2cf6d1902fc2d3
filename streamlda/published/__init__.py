"""Systems of other papers, as they were published, to compare with; no part of the engine.

Nothing else in streamlda imports from here. What a paper does not prove is marked so wherever it
shows: in the code, in the answer and in its statement.
"""
