"""Faults of federations, their rounds, keys and shares: rule, remedy and class of each are data."""

from __future__ import annotations

from streamlda.errors import (
    Faults,
    InsufficientDataError,
    InvalidSettingError,
    LedgerError,
    ModelFileError,
)

_FAULTS = Faults(
    {
        InsufficientDataError: {
            "slots of site": "a site must fill the slots that it has promised; nothing was spent: "
            "bring more documents, or agree on smaller windows or another weight",
        },
        InvalidSettingError: {
            "announced twice": "each site must be announced once in a round, and one is twice; "
            "leave one out",
            "another round": "a share must be one of this round, and it differs; ask the site for "
            "its share of this round and attempt",
            "announcement of round": "an announcement must be of this round; ask the site for its "
            "announcement of this attempt",
            "announcements missing": "a round needs the announcements of all sites, and some are "
            "missing; let these sites sign the config (streamlda site sign), or the next attempt "
            "(streamlda site sign --round)",
            "colluders": "colluders must be from 0 to one less than the sites",
            "config of announcement": "an announcement must be of the federation config, and this "
            "is of another; let all sites sign the same config",
            "config of round": "a round must belong to the federation config; take the round that "
            "was made with this config",
            "curve": "a key of a site must be a point of its curve, and not of low order; ask that "
            "site for the file that streamlda site wrote",
            "delta": "delta must be at least 100 times what the exactness of all sites' noise "
            "takes; take a larger delta or a smaller epsilon",
            "digest": "the digest of the federation config must be the one that you expect; ask "
            "the other sites for the digest of theirs, by another way than the file",
            "documents": "the sums of all sites must be sums of documents, and these are not; a "
            "site has added what no documents add: find out which, and agree on a new config "
            "without it",
            "hex": "a public key must be 64 hex digits; take what keygen wrote",
            "key of site": "a site must have the key that the federation config names, and this "
            "is another; use the key file whose public half is in the config",
            "masks left": "the masks of all sites must cancel, and a sum is one that no documents "
            "have; let every site check its keys against the config, and begin the round again "
            "(streamlda site sign --round)",
            "missing shares": "masks cancel only if all sites have sent their shares, and some "
            "are missing; wait for them, or begin the round again without them: that takes a new "
            "config, and other documents at all sites",
            "name of site": "the name of a site must be 1 to 63 letters, digits, points, hyphens "
            "or underscores and begin with a letter or digit",
            "noise alone": "a site's own noise must keep its promise within max_epsilon_alone if "
            "all others collude; agree on more colluders or a smaller epsilon, or, if you know "
            "all sites and trust them, set --max-epsilon-alone (inf: no limit)",
            "own key": "every site must have a name and a key of its own, and two have one; let "
            "each site, and the aggregator, make its own key",
            "share twice": "each site must have one share in a round, and one has two; leave one "
            "out",
            "site": "a site must be in the federation config; leave its share out, or agree on a "
            "new config",
            "slots of stage": "every site must have a slot in every stage, and one has none; take "
            "larger windows, or leave the site out",
            "stage of round": "a round must begin a stage of the config's settings; ask the "
            "aggregator for the round again, or make it from the shares",
            "size of share": "a share must have at most 2^35 values; use fewer words or columns",
            "sum of weights": "weights of all sites must sum to 1; divide each by their sum",
            "unsigned": "an announcement must name its config and be signed",
            "unsigned config": "a site must sign a federation config before it answers, and has "
            "not signed this one; look at it (streamlda site show), compare the digest with the "
            "other sites, and sign it (streamlda site sign --expect DIGEST)",
            "weights": "there must be at least two sites, each of a weight between 0 and 1; leave "
            "out sites of no weight",
            "words": "words must be public, and as many as the settings say; agree on a word list "
            "or on hashing",
        },
        LedgerError: {
            "ledger": "a site must keep to one ledger, which knows the documents of its rounds; "
            "give the --ledger of the shares before; if it is gone, its documents count as used "
            "up: agree on a new config, for others",
            "round key": "a round must name this site's own round key, and names another; two "
            "copies of one key are in use: keep one, make new keys and a new config",
            "round key used": "a round key must mask one share, and that of this round was used "
            "or is not here; send the share that was made, or begin the round again (streamlda "
            "site sign --round, at all sites)",
            "share lost": "a site must make one share of a round, and that of this round was lost "
            "and is paid for; begin the round again at all sites (streamlda site sign --round)",
            "share made": "a site must make one share of a round, and that of this round is "
            "there; send that one",
        },
        ModelFileError: {
            "blocks of share": "a share must have the blocks of its stage; ask the site to make "
            "it with the same version of streamlda",
            "key file": "a key file must be readable by its owner only; if nobody has read it: "
            "chmod 600, else make new keys",
            "signature of announcement": "an announcement must be as its site has signed it, and "
            "this one is another; ask the site to send it again",
            "signature of round": "a round must be as the aggregator has signed it, and this one "
            "is another; ask the aggregator for the round again",
            "signature of share": "a share must be as its site has signed it, and this one is "
            "another; it was altered on its way, or is not from that site: ask the site to send "
            "it again",
        },
    }
)
fault, check = _FAULTS.make, _FAULTS.check
