"""Faults of federations, their rounds, keys and shares: text, remedy and class of each are data."""

from streamlda import errors

_FAULTS = errors.Faults(
    {
        errors.InsufficientDataError: {
            "slots of site": "a site has filled fewer slots than it promised; nothing was spent: "
            "bring more documents, or agree on smaller windows or another weight",
        },
        errors.InvalidSettingError: {
            "announced twice": "a site is announced twice in the round; leave one out",
            "another round": "a share is of another round; ask the site for its share of this "
            "round and attempt",
            "announcement of round": "an announcement is of another round or attempt; ask the "
            "site for its announcement of this attempt",
            "announcements missing": "announcements of some sites are missing; let these sites "
            "sign the config (streamlda site sign), or the next attempt (streamlda site sign "
            "--round)",
            "colluders": "colluders must be from 0 to one less than the sites",
            "config of announcement": "an announcement is of another federation config; let all "
            "sites sign the same config",
            "config of round": "a round is of another federation config; take the round that was "
            "made with this config",
            "curve": "a key of a site is no point of its curve, or is of low order; ask that site "
            "for the file that streamlda site wrote",
            "delta": "delta must be at least 100 times what the exactness of all sites' noise "
            "takes; take a larger delta or a smaller epsilon",
            "digest": "the digest of the federation config is not the one that you expect; ask "
            "the other sites for the digest of theirs, by another way than the file",
            "documents": "the sums of all sites are no sums of documents; a site has added what "
            "no documents add: find out which, and agree on a new config without it",
            "hex": "a public key is not 64 hex digits; take what keygen wrote",
            "key of site": "the federation config names another key for this site; use the key "
            "file whose public half is in the config",
            "masks left": "the masks of all sites do not cancel; let every site check its keys "
            "against the config, and begin the round again (streamlda site sign --round)",
            "missing shares": "shares of some sites are missing, so masks do not cancel; wait for "
            "them, or begin the round again without them: that takes a new config, and other "
            "documents at all sites",
            "name of site": "the name of a site must be 1 to 63 letters, digits, points, hyphens "
            "or underscores and begin with a letter or digit",
            "noise alone": "a site's own noise does not keep max_epsilon_alone if all others "
            "collude; agree on more colluders or a smaller epsilon, or, if you know all sites and "
            "trust them, set --max-epsilon-alone (inf: no limit)",
            "own key": "two sites have the same name or key; let each site, and the aggregator, "
            "make its own key",
            "share twice": "a site has two shares in the round; leave one out",
            "site": "the federation config has no such site; leave its share out, or agree on a "
            "new config",
            "slots of stage": "a site has no slot in a stage; take larger windows, or leave the "
            "site out",
            "stage of round": "a round begins no stage of the config's settings; ask the "
            "aggregator for the round again, or make it from the shares",
            "size of share": "a share has more than 2^35 values; use fewer words or columns",
            "sum of weights": "weights of all sites do not sum to 1; divide each by their sum",
            "unsigned": "an announcement names no config, or is not signed",
            "unsigned config": "this site has not signed the federation config; look at it "
            "(streamlda site show), compare the digest with the other sites, and sign it "
            "(streamlda site sign --expect DIGEST)",
            "weights": "there are fewer than two sites, or a weight is not between 0 and 1; leave "
            "out sites of no weight",
            "words": "words are not public, or not as many as the settings say; agree on a word "
            "list or on hashing",
        },
        errors.LedgerError: {
            "ledger": "a site's earlier shares were paid from another ledger; give the --ledger of "
            "the shares before; if it is gone, its documents count as used up: agree on a new "
            "config, for others",
            "round key": "a round names another round key than this site's; two copies of one key "
            "are in use: keep one, make new keys and a new config",
            "round key used": "the round key of this round was used or is not here; send the share "
            "that was made, or begin the round again (streamlda site sign --round, at all sites)",
            "share lost": "this site's share of the round was paid for and is lost; begin the "
            "round again at all sites (streamlda site sign --round)",
            "share made": "this site's share of the round is there; send that one",
        },
        errors.ModelFileError: {
            "blocks of share": "a share lacks a block of its stage; ask the site to make it with "
            "the same version of streamlda",
            "key file": "a key file is readable by others than its owner; if nobody has read it: "
            "chmod 600, else make new keys",
            "signature of announcement": "an announcement is not as its site has signed it; ask "
            "the site to send it again",
            "signature of round": "a round is not as the aggregator has signed it; ask the "
            "aggregator for the round again",
            "signature of share": "a share is not as its site has signed it; it was altered on its "
            "way, or is not from that site: ask the site to send it again",
        },
    }
)
fault, check = _FAULTS.make, _FAULTS.check
